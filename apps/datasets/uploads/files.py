"""The files of uploads that are not finished: appended under a lock, and synced."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from django.conf import settings

from apps.datasets.services import Readable

BLOCK_BYTES = 1024**2
SYNC_BYTES = 64 * 1024**2
SUFFIX = ".part"


class InUse(Exception):
    """Another request writes or reads the file."""


def directory() -> Path:
    """Return the directory of the files, which exists then."""
    root: Path = settings.DATA_DIR / "uploads"
    root.mkdir(parents=True, exist_ok=True)
    return root


def path_of(upload_id: str) -> Path:
    return directory() / f"{upload_id}{SUFFIX}"


def received(upload_id: str) -> int:
    """Return the number of bytes that are on the disk."""
    try:
        return path_of(upload_id).stat().st_size
    except FileNotFoundError:
        return 0


@contextmanager
def locked(upload_id: str) -> Iterator[IO[bytes]]:
    """The file, created if need be, locked between processes. Raises InUse."""
    with path_of(upload_id).open("ab+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUse from None
        yield file


def append(file: IO[bytes], content: Readable, num_bytes: int) -> None:
    """Append at most `num_bytes`; what arrived before an error stays, and is synced, too."""
    try:
        since = 0
        while num_bytes and (block := content.read(min(num_bytes, BLOCK_BYTES))):
            file.write(block)
            num_bytes -= len(block)
            since += len(block)
            if since >= SYNC_BYTES:
                sync(file)
                since = 0
    finally:
        sync(file)


def sync(file: IO[bytes]) -> None:
    """Return when the bytes, the size and the name are on the disk."""
    file.flush()
    os.fsync(file.fileno())
    entries = os.open(directory(), os.O_RDONLY)
    try:
        os.fsync(entries)
    finally:
        os.close(entries)


def names() -> list[str]:
    """Return the ids of all files."""
    return [path.name.removesuffix(SUFFIX) for path in directory().glob(f"up_*{SUFFIX}")]
