"""Points of the processor time and memory that an attempt's processes use.

The supervisor takes them from outside, so that every kind has them and the job computes nothing
for them; a worker over HTTP sends them with its progress. Like the points of the speed, no state,
result or comparison contains them.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import psutil

from trainops.media.names import SYSTEM

LEAST_SECONDS = 2.0  # between two points
SHARE = 0.02  # of the time so far, between two points: 30 days have fewer than 700
Points = list[tuple[int, float, Mapping[str, float]]]


@dataclass(slots=True)
class ProcessUse:
    """Measures a process and its descendants from the first call of `points` on."""

    pid: int
    clock: Callable[[], float] = time.monotonic
    _began_at: float | None = None
    _at: float = 0.0
    _step: int = 0
    _cpu_seconds: float = 0.0

    def points(self, step: int) -> Points:
        """Return the points that are due as (step, Unix time, values); a step has them once.

        `system/cpu_percent` is the mean since the last points, 100 for each busy core, and
        `system/memory_bytes` the resident memory at this moment, summed over the processes.
        """
        at = self.clock()
        if self._began_at is None:
            self._began_at = at
            self._cpu_seconds, _ = _used(self.pid)
            self._at, self._step = at, step
            return []
        wanted = max(LEAST_SECONDS, SHARE * (at - self._began_at))
        if step <= self._step or at - self._at < wanted:
            return []
        cpu_seconds, memory_bytes = _used(self.pid)
        if not memory_bytes:  # it has just ended
            return []
        percent = 100 * max(0.0, cpu_seconds - self._cpu_seconds) / (at - self._at)
        self._at, self._step, self._cpu_seconds = at, step, cpu_seconds
        values = {f"{SYSTEM}cpu_percent": percent, f"{SYSTEM}memory_bytes": float(memory_bytes)}
        return [(step, time.time(), values)]


def _used(pid: int) -> tuple[float, int]:
    """Return the processor seconds and the resident bytes of a process and its descendants.

    The seconds are those since their start, with those of descendants that have ended.
    """
    seconds, resident = 0.0, 0
    for process in processes_of(pid):
        with suppress(psutil.Error), process.oneshot():
            times = process.cpu_times()
            resident += process.memory_info().rss
            seconds += times.user + times.system
            seconds += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return seconds, resident


def processes_of(pid: int) -> Iterator[psutil.Process]:
    """Yield a process and its descendants; none if it has ended."""
    if pid <= 0:
        return
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        yield process
        yield from process.children(recursive=True)
