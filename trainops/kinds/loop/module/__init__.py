"""Training of a module whose steps are methods; trainops owns the loop. See docs/modules.md."""

from trainops.kinds.loop.module.base import Optimizers, TrainingModule
from trainops.kinds.loop.module.optimization import (
    Extent,
    Schedule,
    make_optimizer,
    make_schedule,
)
from trainops.kinds.loop.module.training import module_loop

__all__ = [
    "Extent",
    "Optimizers",
    "Schedule",
    "TrainingModule",
    "make_optimizer",
    "make_schedule",
    "module_loop",
]
