"""Points of the speed of an attempt, and of its use of the GPU.

They are measured by the clock, so a resume never repeats them: they are no part of a state or of
a result, and their names begin with `system/`.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from trainops.media.names import SYSTEM
from trainops.runtime.job import Measured

log = logging.getLogger(__name__)
LEAST_SECONDS = 1.0  # between two points
SHARE = 0.02  # of the time so far, between two points: 30 days have fewer than 700


class SpeedMeter:
    """Measures one attempt from the first call of `points` on."""

    def __init__(self, job: Measured, clock: Callable[[], float] = time.monotonic) -> None:
        self._job, self._clock = job, clock
        self._began_at: float | None = None
        self._gpu = _Gpu()

    def points(
        self, step: int, *, is_last: bool = False
    ) -> list[tuple[int, float, dict[str, float]]]:
        """Return the points that are due as (step, Unix time, means since the last points).

        They are due after a second, or a fiftieth of the time so far if that is longer, and at
        the last step; a step has them once. A share is from 0 to 1, the utilization of the GPU is
        in percent.
        """
        at = self._clock()
        if self._began_at is None:
            self._began_at = at
            self._start(step, at)
            return []
        seconds = at - self._at
        wanted = 0.0 if is_last else max(LEAST_SECONDS, SHARE * (at - self._began_at))
        if step <= self._step or seconds <= 0 or seconds < wanted:
            return []
        points = self._speed(step, seconds) | self._gpu.points()
        self._start(step, at)
        return [(step, time.time(), {f"{SYSTEM}{name}": each for name, each in points.items()})]

    def _start(self, step: int, at: float) -> None:
        self._step, self._at, self._before = step, at, replace(self._job.throughput)

    def _speed(self, step: int, seconds: float) -> dict[str, float]:
        before, now = self._before, self._job.throughput
        points = {}
        if before.num_samples is None or now.num_samples is None:
            points["steps_per_second"] = (step - self._step) / seconds
        else:
            points["samples_per_second"] = (now.num_samples - before.num_samples) / seconds
        if before.wait_seconds is not None and now.wait_seconds is not None:
            waited = now.wait_seconds - before.wait_seconds
            points["data_wait_share"] = min(1.0, waited / seconds)
        return points


class _Gpu:
    """The GPU of this process, once it uses one."""

    def __init__(self) -> None:
        self._has_utilization = True  # until the driver refuses, as it does for a part of a GPU

    def points(self) -> dict[str, float]:
        if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
            return {}
        points = {"gpu_memory_bytes": float(torch.cuda.memory_reserved())}
        if self._has_utilization:
            try:
                points["gpu_utilization"] = float(torch.cuda.utilization())
            except Exception as error:  # noqa: BLE001 - whatever the driver says, the run goes on
                self._has_utilization = False
                log.warning("the utilization of the GPU is not recorded: %s", error)
        return points
