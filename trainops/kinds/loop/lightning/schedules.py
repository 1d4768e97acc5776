"""Steps of the schedulers, when Lightning's Trainer takes them."""

from collections.abc import Sequence

from lightning.pytorch import LightningModule

from trainops.kinds.loop.lightning.logged import Logged
from trainops.kinds.loop.lightning.optimizers import LRSchedulerConfig
from trainops.kinds.loop.replicas import Reductions
from trainops.runtime.errors import InputError


class Schedules:
    """With manual optimization the module steps its schedulers itself."""

    def __init__(
        self,
        module: LightningModule,
        configs: Sequence[LRSchedulerConfig],
        logged: Logged,
        reductions: Reductions,
    ) -> None:
        self._module, self._logged, self._reductions = module, logged, reductions
        self._configs = configs if module.automatic_optimization else []

    def step(self, interval: str, number: int, *, plateaus: bool = False) -> None:
        """Step what is due after batch or epoch `number` of its interval: plateaus, or others."""
        for each in self._configs:
            is_due = each.interval == interval and number % each.frequency == 0
            if is_due and each.reduce_on_plateau == plateaus:
                metric = self._metric(each) if plateaus else None
                if metric is not None or not plateaus:
                    self._module.lr_scheduler_step(each.scheduler, metric)

    def _metric(self, config: LRSchedulerConfig) -> float | None:
        latest, name = self._logged.latest, str(config.monitor)
        if name in latest:
            return float(self._reductions.mean(float(latest[name])))  # values of steps differ
        if not config.strict:
            return None
        problem = f"a scheduler monitors {name!r}, which was not logged"
        raise InputError({"recipe": f"{problem}; allowed: {', '.join(latest) or 'nothing yet'}"})
