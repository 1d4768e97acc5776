"""The optimizers and schedules that a config can name."""

import inspect
import math
from collections.abc import Sequence

from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LambdaLR,
    LRScheduler,
    OneCycleLR,
    ReduceLROnPlateau,
    StepLR,
)

from trainops.kinds.training.config import TrainingConfig
from trainops.learning.optimizer_state import needs_closure
from trainops.runtime.errors import InputError


def make_optimizers(config: TrainingConfig, model: nn.Module) -> list[Optimizer]:
    """Return the optimizer that the config names, over all of the model's parameters."""
    learning_rate, weight_decay = config.learning_rate, config.weight_decay
    match config.optimizer:
        case "sgd":
            return [
                SGD(model.parameters(), learning_rate, config.momentum, weight_decay=weight_decay)
            ]
        case "adam":
            return [Adam(model.parameters(), learning_rate, weight_decay=weight_decay)]
        case "adamw":
            return [AdamW(model.parameters(), learning_rate, weight_decay=weight_decay)]


def make_schedulers(
    config: TrainingConfig, optimizers: Sequence[Optimizer], *, total_steps: int, epoch_steps: int
) -> list[LRScheduler]:
    """Return the schedule that the config names, one for each optimizer; it counts steps."""
    return [
        scheduler
        for optimizer in optimizers
        if (scheduler := _scheduler(config, optimizer, total_steps, epoch_steps))
    ]


def require_optimizers(optimizers: Sequence[Optimizer]) -> None:
    """Refuse, before the first step, what cannot take one here. Raises InputError."""
    for optimizer in optimizers:
        if needs_closure(optimizer):
            problem = (
                f"got the optimizer {type(optimizer).__name__}, whose step needs a closure; "
                "allowed: optimizers whose step needs no closure"
            )
            raise InputError({"recipe": problem})


def require_schedulers(schedulers: Sequence[LRScheduler], config: TrainingConfig) -> None:
    """Refuse schedules that go by something that is not known here. Raises InputError."""
    for scheduler in schedulers:
        name = type(scheduler).__name__
        if isinstance(scheduler, ReduceLROnPlateau):
            if scheduler.mode != config.mode:
                problem = (
                    f"got {name} with mode {scheduler.mode!r}; it is given {config.monitor}, whose "
                    f"mode is {config.mode!r}; allowed: the same mode"
                )
                raise InputError({"recipe": problem})
        elif wanted := _wanted(scheduler):
            problem = (
                f"got the schedule {name}, whose step needs {', '.join(wanted)}; allowed: "
                "schedules whose step needs no arguments, and ReduceLROnPlateau"
            )
            raise InputError({"recipe": problem})


def _wanted(scheduler: LRScheduler) -> list[str]:
    """Return the arguments that a step cannot do without."""
    parameters = inspect.signature(scheduler.step).parameters.values()
    return [
        each.name
        for each in parameters
        if each.default is each.empty
        and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    ]


def _scheduler(
    config: TrainingConfig, optimizer: Optimizer, total_steps: int, epoch_steps: int
) -> LRScheduler | None:
    match config.scheduler:
        case "none":
            return None
        case "cosine":
            return CosineAnnealingLR(optimizer, T_max=total_steps)
        case "step":
            return StepLR(
                optimizer, config.scheduler_step_epochs * epoch_steps, config.scheduler_factor
            )
        case "onecycle":
            rising = max(config.warmup_fraction, 1 / total_steps)
            return OneCycleLR(
                optimizer,
                config.learning_rate,
                total_steps=total_steps + 1,
                pct_start=rising,
                cycle_momentum=_has_momentum(optimizer),  # a recipe may bring its own
            )
        case "warmup_cosine":
            return LambdaLR(optimizer, _WarmupCosine(config.warmup_fraction, total_steps))


def _has_momentum(optimizer: Optimizer) -> bool:
    """Whether there is a momentum that a schedule can move: one of 0 stays 0."""
    return "betas" in optimizer.defaults or bool(optimizer.defaults.get("momentum"))


class _WarmupCosine:
    """Up in a straight line, then down along a cosine, as a factor of the learning rate."""

    def __init__(self, warmup_fraction: float, total_steps: int) -> None:
        self._warmup_steps = math.ceil(warmup_fraction * total_steps)
        self._total_steps = total_steps

    def __call__(self, step: int) -> float:
        if step < self._warmup_steps:
            return (step + 1) / (self._warmup_steps + 1)
        falling = (step - self._warmup_steps) / max(1, self._total_steps - self._warmup_steps)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, falling)))
