"""Copies of open files that are compared with the digest of their content."""

import os
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from blake3 import blake3

from trainops.encrypted_files import Altered

CHUNK_BYTES = 2**20
DRAFT = ".draft-"


def whole(file: BinaryIO, max_bytes: int) -> bytes:
    """Return the rest of a small file. Raises ValueError where it has more bytes."""
    content = bytearray()
    while chunk := file.read(CHUNK_BYTES):
        content += chunk
        if len(content) > max_bytes:
            raise ValueError(f"it has more than {max_bytes:,} bytes")
    return bytes(content)


def copy(source: BinaryIO, target: Path, digest: str) -> int:
    """Copy the rest of an open file to `target`, which appears whole or not at all.

    Returns its size. Raises Altered, OSError.
    """
    draft = target.with_name(f"{DRAFT}{token_hex(8)}")
    hasher = blake3()
    try:
        with draft.open("xb") as file:
            while chunk := source.read(CHUNK_BYTES):
                hasher.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
            size_bytes = file.tell()
        if hasher.hexdigest() != digest:
            raise Altered
        draft.rename(target)
    finally:
        draft.unlink(missing_ok=True)
    return size_bytes


def digest_of(file: BinaryIO) -> str:
    hasher = blake3()
    while chunk := file.read(CHUNK_BYTES):
        hasher.update(chunk)
    return hasher.hexdigest()
