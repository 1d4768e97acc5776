"""A limit of the gradient norm: a step beyond it fails the training, or is logged."""

import logging
from collections.abc import Callable

from trainops.learning.limits import LearningLimitsConfig
from trainops.runtime.errors import ExplodingNorm

log = logging.getLogger(__name__)


class NormLimit:
    """`limits.exploding_norm` and `limits.on_exploding_norm` of a config."""

    def __init__(self, limits: LearningLimitsConfig) -> None:
        self.limit, self._on_exceeding = limits.exploding_norm, limits.on_exploding_norm

    @property
    def is_set(self) -> bool:
        return self.limit is not None

    def check(self, norm: float, step: int, where: Callable[[], str]) -> None:
        """Compare the norm of step `step`, before clipping; `where` names its batch.

        Raises ExplodingNorm for a larger norm, also for one that is NaN.
        """
        if self.limit is None or norm <= self.limit:
            return
        error = ExplodingNorm(step, norm, self.limit, where())
        if self._on_exceeding == "fail":
            raise error
        log.warning("%s", error)
