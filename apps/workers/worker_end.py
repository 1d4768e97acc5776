"""When a worker process ends by itself: before its time is over, or after some time without work.

Its time ends by this machine's wall clock, which batch systems and people mean by 04:30; a clock
that is set meanwhile moves the end with it.
"""

import time
from collections.abc import Callable

from django.conf import settings

from apps.operations.attempts.work import WorkerRuntime
from trainops.process.protocol import now

CHECK_SECONDS = 0.5


class WorkerEnd:
    """Decides whether a worker process is to stop now, and why."""

    def __init__(self, runtime: WorkerRuntime, *, clock: Callable[[], float] = now) -> None:
        self.runtime, self.clock = runtime, clock
        self.idle_exit_seconds: float | None = None
        self.is_decided = False
        self._idle_since: float | None = None

    @property
    def seconds(self) -> float | None:
        """Seconds until its time ends, at least 0; None: it has no end."""
        ends_at = self.runtime.ends_at
        return None if ends_at is None else max(0.0, ends_at - time.time())

    def reason(self) -> str:
        """Return why the process is to stop now, once; else an empty text.

        Afterwards it claims nothing: an operation that was claimed before is not idle time.
        """
        if self.is_decided:
            return ""
        left, limit = self.seconds, settings.THRESHOLDS.shutdown_timeout_seconds
        if left is not None and left <= limit:
            self.is_decided = True
            return f"its time ends in {left:.0f} s"
        with self.runtime.slots.claiming:
            if not self._is_idle_for_long():
                return ""
            self.is_decided = True
            self.runtime.slots.drain(True)
        return f"no work for {self.idle_exit_seconds:g} s"

    def _is_idle_for_long(self) -> bool:
        """Whether nothing ran here for long enough, since work could first be claimed."""
        if self.idle_exit_seconds is None or not self.runtime.is_open:
            return False
        if self._idle_since is None or self.runtime.slots.all():
            self._idle_since = self.clock()
        return self.clock() - self._idle_since >= self.idle_exit_seconds
