"""Measures how busy this machine is."""

import time
from collections.abc import Callable

import psutil

from apps.workers.inventory import gpu_loads
from apps.workers.load import SAMPLE_SECONDS, MachineLoad


class LoadMeter:
    """Measures at most once a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._at = clock, clock()
        psutil.cpu_percent()  # the next call returns the mean from here on

    def due(self) -> MachineLoad | None:
        """Return the load since the last sample; None where that is too recent."""
        if self._clock() - self._at < SAMPLE_SECONDS:
            return None
        self._at = self._clock()
        memory = psutil.virtual_memory()
        return MachineLoad(psutil.cpu_percent(), memory.total - memory.available, gpu_loads())
