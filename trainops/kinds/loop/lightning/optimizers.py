"""What configure_optimizers of a LightningModule returns, in one form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from trainops.runtime.errors import InputError


@dataclass(slots=True)
class LRSchedulerConfig:
    """A scheduler as Lightning describes it."""

    scheduler: LRScheduler
    interval: str = "epoch"
    frequency: int = 1
    monitor: str | None = None
    strict: bool = True
    name: str | None = None
    reduce_on_plateau: bool = False


def configured(returned: Any) -> tuple[list[Optimizer], list[LRSchedulerConfig]]:
    """Return optimizers and schedulers. Raises InputError for what Lightning would refuse, too."""
    schedulers: Sequence[Any] = ()
    if isinstance(returned, tuple | list) and len(returned) == 2 and _is_list(returned[0]):
        optimizers, given = returned
        schedulers = given if isinstance(given, tuple | list) else [given]
    elif isinstance(returned, Optimizer | Mapping):
        optimizers = [returned]
    else:
        optimizers = returned
    if not _is_list(optimizers):
        problem = f"configure_optimizers returned a {type(returned).__name__}"
        allowed = "optimizers, dicts with 'optimizer', and pairs of lists"
        raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
    found = [_split(each) for each in optimizers]
    described = [*(each for _, inner in found for each in inner), *schedulers]
    return [optimizer for optimizer, _ in found], [_scheduler(each) for each in described]


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0


def _split(given: Any) -> tuple[Optimizer, list[Any]]:
    schedulers = []
    if isinstance(given, Mapping):
        if unknown := sorted(given.keys() - {"optimizer", "lr_scheduler", "monitor"}):
            problem = f"configure_optimizers returned {', '.join(map(str, unknown))}"
            raise InputError({"recipe": f"{problem}; allowed: optimizer, lr_scheduler, monitor"})
        scheduler = given.get("lr_scheduler")
        if isinstance(scheduler, ReduceLROnPlateau):  # as in Lightning, of no other
            scheduler = {"scheduler": scheduler, "monitor": given.get("monitor")}
        schedulers = [scheduler] if scheduler is not None else []
        given = given.get("optimizer")
    if not isinstance(given, Optimizer):
        problem = f"configure_optimizers returned a {type(given).__name__} as an optimizer"
        raise InputError({"recipe": f"{problem}; allowed: optimizers of torch.optim"})
    return given, schedulers


def _scheduler(given: Any) -> LRSchedulerConfig:
    options = dict(given) if isinstance(given, Mapping) else {"scheduler": given}
    names = [each.name for each in fields(LRSchedulerConfig)]
    if unknown := sorted(options.keys() - set(names)):
        problem = f"a scheduler is configured with {', '.join(map(str, unknown))}"
        raise InputError({"recipe": f"{problem}; allowed: {', '.join(names)}"})
    scheduler = options.get("scheduler")
    if not isinstance(scheduler, LRScheduler):
        problem = f"got a {type(scheduler).__name__} as a scheduler"
        raise InputError({"recipe": f"{problem}; allowed: those of torch.optim.lr_scheduler"})
    options.setdefault("reduce_on_plateau", isinstance(scheduler, ReduceLROnPlateau))
    found = LRSchedulerConfig(**options)
    if found.interval not in ("step", "epoch"):
        problem = f"got the interval {found.interval!r} of {type(scheduler).__name__}"
        raise InputError({"recipe": f"{problem}; allowed: step, epoch"})
    if found.reduce_on_plateau and found.monitor is None:
        problem = f"{type(scheduler).__name__} has no monitor"
        raise InputError({"recipe": f"{problem}; give the name of a logged metric"})
    return found
