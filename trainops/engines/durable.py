"""Files that are whole and on the disk, or not there at all."""

import errno
import os
import shutil
from pathlib import Path
from typing import BinaryIO

from blake3 import blake3

SPARE_BYTES = 2**20  # what a file system needs for itself
UNSUPPORTED = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}


class DurableFile:
    """One file being written: allocated first, hashed on the way, synced at the end.

    The first error is kept and later writes are swallowed, because the archive writer of torch
    turns an error in the middle into one of its own.
    """

    def __init__(self, path: Path, expected_bytes: int) -> None:
        self.name = path.name
        self.size_bytes = 0
        self._error: OSError | None = None
        self._hasher = blake3()
        self._file: BinaryIO = path.open("xb")
        self._allocate(expected_bytes)

    def write(self, content: bytes) -> int:
        if self._error is None:
            try:
                self._file.write(content)
                self._hasher.update(content)
            except OSError as error:
                self._error = error
        self.size_bytes += len(content)
        return len(content)

    def flush(self) -> None:
        """Part of the interface that torch writes to; `finish` is what makes bytes durable."""

    def finish(self) -> str:
        """Make the bytes durable and return their BLAKE3 digest. Raises OSError."""
        if self._error is not None:
            raise self._error
        self._file.flush()
        self._file.truncate(self.size_bytes)  # what was allocated too much
        os.fsync(self._file.fileno())
        return self._hasher.hexdigest()

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as error:  # what could not be flushed is being removed anyway
            self._error = self._error or error

    def _allocate(self, size_bytes: int) -> None:
        try:
            os.posix_fallocate(self._file.fileno(), 0, size_bytes)
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                self.close()
                raise


def require_space(directory: Path, size_bytes: int) -> None:
    """Raise OSError where a full disk is foreseeable."""
    if shutil.disk_usage(directory).free < size_bytes + SPARE_BYTES:
        raise OSError(errno.ENOSPC, f"no space left for a checkpoint of {size_bytes:,} bytes")


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file that is either whole or absent, durably."""
    draft = path.with_name(f"{path.name}.draft")
    with draft.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make the directory's entries durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
