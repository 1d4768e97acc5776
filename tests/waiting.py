import time
from collections.abc import Callable
from typing import Any

import psutil


def wait_until(condition: Callable[[], Any], seconds: float = 300) -> Any:
    """Return what `condition` returns once it is true; fail after N seconds."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found


def has_ended(which: psutil.Process | int) -> bool:
    """Whether a process has, be it that nobody has asked yet how; it may do so while one looks."""
    try:
        process = psutil.Process(which) if isinstance(which, int) else which
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
