"""The limits of a confined process, which the kernel enforces."""

import os
import resource
from dataclasses import dataclass

import psutil

MAX_OPEN_FILES = 256
NICE = 10  # pages and API come first


@dataclass(frozen=True, slots=True)
class Limits:
    """`memory_bytes` come on top of what the program itself takes before it reads anything.

    `seconds` hold for its time on the clock and on the processors; `file_bytes` for each file that
    it writes.
    """

    memory_bytes: int
    seconds: int
    file_bytes: int


def confine(limits: Limits) -> None:
    """Give this process all of the limits but that of memory."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)
    _limit(resource.RLIMIT_FSIZE, limits.file_bytes)
    _limit(resource.RLIMIT_CPU, limits.seconds * (os.cpu_count() or 1))
    os.nice(NICE)


def confine_memory(limits: Limits) -> None:
    """Limit what this process takes from now on, its program's own code and libraries apart."""
    _limit(resource.RLIMIT_AS, psutil.Process().memory_info().vms + limits.memory_bytes)


def _limit(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))
