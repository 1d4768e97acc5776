"""When a checkpoint is due."""

import math
import time
from collections.abc import Callable


class CheckpointPolicy:
    """When a checkpoint is due: after N steps or seconds, whichever comes first.

    Both are counted from the start of the attempt or from the last checkpoint. Where steps are so
    quick that a checkpoint takes longer than what it would spare, `least_seconds` lie between.
    """

    def __init__(
        self,
        *,
        every_steps: int | None = None,
        every_seconds: float = 300.0,
        least_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.every_steps = every_steps
        self.every_seconds = every_seconds
        self.least_seconds = least_seconds
        self._clock = clock
        self._due_step = self._due_at = self._not_before = math.inf
        self._milestones: Callable[[], int] | None = None
        self._passed = 0
        self.saved(0)

    def is_due(self, step: int) -> bool:
        now = self._clock()
        if now >= self._due_at:
            return True
        return now >= self._not_before and (step >= self._due_step or self._has_passed_one())

    def saved(self, step: int) -> None:
        """Count from here: at the attempt's start, after a checkpoint, after a failed one."""
        now = self._clock()
        self._due_step = math.inf if self.every_steps is None else step + self.every_steps
        self._due_at, self._not_before = now + self.every_seconds, now + self.least_seconds
        self._passed = self._milestones() if self._milestones else 0

    def follow(self, milestones: Callable[[], int]) -> None:
        """Take a job's own count of what has come due into account, from its next rise on."""
        self._milestones = milestones

    def _has_passed_one(self) -> bool:
        return self._milestones is not None and self._milestones() > self._passed

    def at_least_every(self, steps: int) -> None:
        """Take a job's own pace into account, where it is the quicker one."""
        self.every_steps = min(steps, self.every_steps or steps)
