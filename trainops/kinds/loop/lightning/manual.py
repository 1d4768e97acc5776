"""What `self.optimizers()` returns to a module that is optimized manually."""

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer

from trainops.kinds.loop.lightning.averaging import Averaging
from trainops.kinds.loop.lightning.callbacks import LightningHooks


class ManualOptimizer:
    """An optimizer whose steps are counted and announced by on_before_optimizer_step."""

    def __init__(
        self,
        optimizer: Optimizer,
        progress: dict[str, Any],
        averaging: Averaging,
        hooks: LightningHooks,
    ) -> None:
        self.optimizer = optimizer
        self._hooks, self._progress, self._averaging = hooks, progress, averaging

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        if closure is None:
            self._averaging.require_averaged()
            self._hooks.call("on_before_optimizer_step", self.optimizer)
            result = self.optimizer.step()
        else:
            result = self.optimizer.step(closure)
        self._progress["global_step"] += 1
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.optimizer, name)
