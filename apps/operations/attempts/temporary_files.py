"""Directories for the temporary files of the attempts of one worker process.

A killed attempt cannot remove its own, so its supervisor does. The worker's directory, which
contains them, is locked until the worker ends: a worker that starts removes those without a lock,
which belong to killed workers. `systemd-tmpfiles` removes nothing in a locked directory, either.
"""

import fcntl
import logging
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

logger = logging.getLogger(__name__)
PREFIX = "trainops-tmp-"
# The path of a UNIX socket has at most 107 bytes. Below the directory of an attempt,
# multiprocessing creates /pymp-xxxxxxxx/listener-xxxxxxxx, PyTorch
# /torch-shm-dir-xxxxxx/manager.sock.
MAX_BYTES = 107 - len("/torch-shm-dir-xxxxxx/manager.sock")
MAX_ROOT_BYTES = MAX_BYTES - len(f"/{PREFIX}xxxxxxxx/xxxxxxxx")


class TemporaryFiles:
    """Creates and removes the directories. Safe to use from many threads."""

    def __init__(self) -> None:
        self.directory: Path | None = None  # the worker's own
        self._lock: int | None = None  # descriptor

    def open(self) -> None:
        """Create and lock the worker's directory, and remove those of killed workers; once.

        Where the path of TMPDIR is too long for sockets below it, a warning says so, and attempts
        use TMPDIR itself. Raises OSError.
        """
        root = Path(tempfile.gettempdir())
        if self._lock is not None or not _is_short(root):
            return
        _remove_unlocked(root)
        while self._lock is None:
            self.directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
            # Another worker that starts may remove it before it is locked.
            with suppress(BlockingIOError, FileNotFoundError):
                self._lock = _locked(self.directory)

    def new(self) -> Path | None:
        """Return a new directory for one attempt; None: it uses TMPDIR itself. Raises OSError."""
        if self.directory is None:
            return None
        return Path(tempfile.mkdtemp(prefix="", dir=self.directory))

    def close(self) -> None:
        """Remove the worker's directory with all that is in it."""
        if self.directory is not None:
            remove(self.directory)
        if self._lock is not None:
            os.close(self._lock)
        self.directory = self._lock = None


def remove(directory: Path) -> None:
    """Remove a directory as far as possible."""
    shutil.rmtree(directory, ignore_errors=True)


def compile_cache() -> dict[str, str]:
    """Return the environment with which attempts share what torch.compile has compiled."""
    return {"TORCHINDUCTOR_CACHE_DIR": f"{tempfile.gettempdir()}/torchinductor_{os.getuid()}"}


def _is_short(root: Path) -> bool:
    num_bytes = len(os.fsencode(root))
    if num_bytes > MAX_ROOT_BYTES:
        logger.warning(
            "temporary files of killed attempts are not removed: TMPDIR: got %s (%d bytes); "
            "allowed: paths of at most %d bytes, since those of sockets below it have at most 107",
            root,
            num_bytes,
            MAX_ROOT_BYTES,
        )
    return num_bytes <= MAX_ROOT_BYTES


def _remove_unlocked(root: Path) -> None:
    """Remove the directories of this user's killed workers."""
    for path in root.glob(f"{PREFIX}*"):
        with suppress(OSError):  # locked, of another user, or removed by another worker meanwhile
            lock = _locked(path)
            try:
                remove(path)
            finally:
                os.close(lock)


def _locked(directory: Path) -> int:
    """Open and lock a directory of this user; return the descriptor.

    Raises OSError, also where another worker has locked or removed it.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if directory.stat().st_uid != os.getuid():  # raises where it was removed before the lock
            raise PermissionError(f"{directory} belongs to another user")
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
