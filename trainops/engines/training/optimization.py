"""The optimizers and schedules that a config can name."""

import math
from collections.abc import Sequence

from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LambdaLR,
    LRScheduler,
    OneCycleLR,
    StepLR,
)

from trainops.engines.training.config import TrainingConfig


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
                cycle_momentum=config.optimizer != "sgd" or config.momentum > 0,
            )
        case "warmup_cosine":
            return LambdaLR(optimizer, _WarmupCosine(config.warmup_fraction, total_steps))


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
