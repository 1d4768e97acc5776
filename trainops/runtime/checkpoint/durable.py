"""Files that are whole and on the disk, or not there at all."""

import errno
import os
import shutil
from pathlib import Path
from typing import BinaryIO

from blake3 import blake3

from trainops.runtime.checkpoint.pages import PAGE_BYTES

SPARE_BYTES = 2**20  # what a file system needs for itself
DIRECT_BYTES = 2**18  # from here on, past the kernel's cache
CHUNK_BYTES = 8 * 2**20  # large: after each one the interpreter's lock is asked for again
UNSUPPORTED = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}


class DurableFile:
    """One file being written: allocated first, hashed on the way, synced at the end.

    What is large and lies at a page of the file goes to the disk from where it is in memory, if
    that is at a page as well: a copy in the kernel's cache costs more than all the rest. Hashing
    and writing leave the interpreter's lock to others. The first error is kept and later writes
    are swallowed, because the archive writer of torch turns an error in the middle into one of
    its own.
    """

    def __init__(self, path: Path, expected_bytes: int) -> None:
        self.name = path.name
        self.size_bytes = 0
        self._error: OSError | None = None
        self._hasher = blake3()
        self._file: BinaryIO = path.open("xb")
        self._direct = _open_direct(path)
        self._allocate(expected_bytes)

    def write(self, content: bytes | memoryview) -> int:
        if self._error is None:
            try:
                with memoryview(content) as view:
                    for first in range(0, len(view), CHUNK_BYTES):
                        self._write(view[first : first + CHUNK_BYTES])
            except OSError as error:
                self._error = error
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
        if self._direct is not None:
            os.close(self._direct)
            self._direct = None
        try:
            self._file.close()
        except OSError as error:  # what could not be flushed is being removed anyway
            self._error = self._error or error

    def _write(self, chunk: memoryview) -> None:
        self._hasher.update(chunk)
        if done := self._write_directly(chunk):
            self._file.seek(self.size_bytes + done)
        self._file.write(chunk[done:])
        self.size_bytes += len(chunk)

    def _write_directly(self, chunk: memoryview) -> int:
        """Write what can go past the kernel's cache; return how many bytes that were."""
        pages = len(chunk) // PAGE_BYTES * PAGE_BYTES
        if self._direct is None or pages < DIRECT_BYTES or self.size_bytes % PAGE_BYTES:
            return 0
        try:
            return os.pwrite(self._direct, chunk[:pages], self.size_bytes)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return 0  # it does not begin at a page of memory

    def _allocate(self, size_bytes: int) -> None:
        try:
            os.posix_fallocate(self._file.fileno(), 0, size_bytes)
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                self.close()
                raise


def _open_direct(path: Path) -> int | None:
    try:
        return os.open(path, os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        return None


def require_space(directory: Path, size_bytes: int, *, spare_bytes: int = 0) -> None:
    """Raise OSError where a full disk is foreseeable, or less would stay free than is to be."""
    free = shutil.disk_usage(directory).free
    if free < size_bytes + SPARE_BYTES:
        raise OSError(errno.ENOSPC, f"no space left for a checkpoint of {size_bytes:,} bytes")
    if free < size_bytes + spare_bytes:
        raise OSError(
            errno.ENOSPC,
            f"of {free:,} bytes that are free {spare_bytes:,} are to stay free, "
            f"and this checkpoint takes {size_bytes:,}; periodic saving pauses",
        )


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
