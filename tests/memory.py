"""Memory of this process."""

import re
import resource
from pathlib import Path

# For a process whose addresses are limited. Tensors of a batch have mappings of their own: within
# glibc's heap, with as many tensors alive, their holes took from 4 to 25 MB, different each time.
NO_HOLES = {"MALLOC_ARENA_MAX": "2", "MALLOC_MMAP_THRESHOLD_": str(2**17)}


def peak_bytes():
    """Return the most that was resident since this program began.

    The peak of `getrusage` includes that of the process which started it.
    """
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


def workers_peak_bytes():
    """Return the most that was resident in a forked process of this one that has ended.

    It begins with what this process had when it was forked.
    """
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def mapped_bytes():
    """Return how much of the resident memory is pages of files."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"RssFile:\s+(\d+) kB", status)[1]) * 1024


def reset_peak():
    """Begin the peak anew, at what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")
