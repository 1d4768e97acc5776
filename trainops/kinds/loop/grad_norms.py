"""The gradient norms of a loop, as its code passes them to `Run.check_norm`."""

import logging
import math
from collections.abc import Callable

from torch import Tensor
from torch.distributed.tensor import DTensor

from trainops.kinds.loop.course import Course
from trainops.learning.limits import LearningLimitsConfig
from trainops.learning.norm_limit import NormLimit
from trainops.runtime.errors import InputError

log = logging.getLogger(__name__)


def whole(norm: float | Tensor) -> float | Tensor:
    """Return the norm over all ranks, where it is that of gradients which they have divided."""
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


class GradNorms:
    """Compares them with limits.exploding_norm. `steps_done`: the steps before the one at work."""

    def __init__(
        self, limits: LearningLimitsConfig, course: Course, steps_done: Callable[[], int]
    ) -> None:
        self._limit, self._course, self._steps_done = NormLimit(limits), course, steps_done
        self._is_used = False

    def check(self, norm: float | Tensor, *, is_scaled: bool = False) -> None:
        """See `Run.check_norm`. Without a limit the norm is not looked at: a GPU runs on."""
        if not self._limit.is_set:
            return
        self._is_used = True
        value = float(whole(norm))
        is_overflow = is_scaled and not math.isfinite(value)  # the scaler leaves out this step
        if not is_overflow and not self._course.is_resuming:
            where = self._course.item_at_work
            self._limit.check(value, self._steps_done() + 1, where)

    def require_known(self, is_known: bool, setting: str) -> None:
        """Raise InputError where there is a limit, and a form does not compute the norm."""
        if self._limit.is_set and not is_known:
            problem = f"got {self._limit.limit:g} without {setting}, which computes the norm"
            raise InputError({"limits.exploding_norm": f"{problem}; allowed: with {setting}"})

    def warn_if_unused(self) -> None:
        """Log that the limit had no effect, where a loop has passed no norm."""
        if self._limit.is_set and not self._is_used:
            log.warning("limits.exploding_norm had no effect: the loop called no run.check_norm")
