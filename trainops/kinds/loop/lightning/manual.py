"""What `self.optimizers()` returns to a module that is optimized manually."""

from collections.abc import Callable
from typing import Any

from lightning.pytorch import LightningModule
from torch.optim import Optimizer

from trainops.kinds.loop.lightning.averaging import Averaging


class ManualOptimizer:
    """An optimizer whose steps are counted and announced by on_before_optimizer_step."""

    def __init__(
        self,
        module: LightningModule,
        optimizer: Optimizer,
        progress: dict[str, Any],
        averaging: Averaging,
    ) -> None:
        self.optimizer = optimizer
        self._module, self._progress, self._averaging = module, progress, averaging

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        if closure is None:
            self._averaging.require_averaged()
            self._module.on_before_optimizer_step(self.optimizer)
            result = self.optimizer.step()
        else:
            result = self.optimizer.step(closure)
        self._progress["global_step"] += 1
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.optimizer, name)
