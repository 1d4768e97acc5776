"""Optimizers and schedules by name."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from trainops.kinds.loop.settings import OptimizerSettings, ScheduleSettings
from trainops.runtime.errors import InputError

LENGTH_OPTIONS = {  # by default the length of the training
    "CosineAnnealingLR": "T_max",
    "OneCycleLR": "total_steps",
    "LinearLR": "total_iters",
    "PolynomialLR": "total_iters",
}


@dataclass(frozen=True, slots=True)
class Extent:
    """Length of a training in epochs and in optimizer steps.

    steps: None where the dataset of the loader "train" is iterable: its length is not known.
    """

    epochs: int
    steps: int | None


@dataclass(frozen=True, slots=True)
class Schedule:
    """A scheduler and when it steps: per optimizer step, per epoch, or on a validation metric.

    field: the field of the form that names the metric, for errors.
    """

    scheduler: LRScheduler
    interval: Literal["step", "epoch", "validation"] = "step"
    metric: str = "val_loss"  # of validations only
    field: str = "recipe"


def make_optimizer(
    settings: OptimizerSettings, parameters: Iterable[nn.Parameter], field: str = "optimizer"
) -> Optimizer:
    """Return the optimizer. Raises InputError, which names `field` of the parameters."""
    options: dict[str, Any] = dict(settings.options)
    if settings.weight_decay is not None:
        options["weight_decay"] = settings.weight_decay
    options |= {name: tuple(each) for name, each in options.items() if isinstance(each, list)}
    made: type[Optimizer] = getattr(torch.optim, settings.name)
    try:
        return made(parameters, lr=settings.learning_rate, **options)  # type: ignore[call-arg]
    except (ValueError, TypeError) as error:
        raise InputError({f"parameters.{field}": f"{settings.name}: {error}"}) from error


def make_schedule(
    settings: ScheduleSettings,
    optimizer: Optimizer,
    extent: Extent,
    field: str = "schedule",
) -> list[Schedule]:
    """Return the schedule, or nothing where the name is none. Raises InputError."""
    if settings.name == "none":
        return []
    made: type[LRScheduler] = getattr(lr_scheduler, settings.name)
    length = extent.steps if settings.interval == "step" else extent.epochs
    options: dict[str, Any] = dict(settings.options)
    option = LENGTH_OPTIONS.get(settings.name)
    if option is not None and option not in options:
        if length is None:
            problem = f"got {settings.name} without {option}: the number of steps is not known"
            allowed = f"{option} in the options, or the interval epoch"
            raise InputError({f"parameters.{field}": f"{problem}; allowed: {allowed}"})
        # the first step of OneCycleLR has been taken when it is made
        options[option] = length + (settings.name == "OneCycleLR")
    try:
        scheduler = made(optimizer, **options)
    except (ValueError, TypeError) as error:
        raise InputError({f"parameters.{field}": f"{settings.name}: {error}"}) from error
    if isinstance(scheduler, ReduceLROnPlateau):
        path = f"parameters.{field}.metric"
        return [Schedule(scheduler, "validation", settings.metric, path)]
    return [Schedule(scheduler, settings.interval)]
