"""Memory of this process."""

import re
from pathlib import Path


def peak_bytes():
    """Return the most that was resident since this program began.

    The peak of `getrusage` includes that of the process which started it.
    """
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


def mapped_bytes():
    """Return how much of the resident memory is pages of files."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"RssFile:\s+(\d+) kB", status)[1]) * 1024


def reset_peak():
    """Begin the peak anew, at what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")
