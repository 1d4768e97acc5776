"""Files that a person names to be sent."""

import errno
import stat
from pathlib import Path
from typing import BinaryIO


def opened(path: Path) -> BinaryIO:
    """Open a file to be sent whole. Raises OSError, also for devices and pipes without an end."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "is not a regular file")
    return path.open("rb")
