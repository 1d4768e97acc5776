"""The files of a backup, each stored once under the digest of its content."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from blake3 import blake3

from trainops.runtime.checkpoint.durable import sync_directory

CHUNK_BYTES = 2**20
DRAFT = ".draft-"


class Altered(Exception):
    """The content of a file does not have the digest that it should have."""


class BackupFiles:
    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, digest: str) -> Path:
        return self.root / digest[:2] / digest

    def has(self, digest: str, size_bytes: int | None = None) -> bool:
        """Whether it is stored; a file of another size was cut off, and does not count."""
        try:
            found = self.path(digest).stat().st_size
        except FileNotFoundError:
            return False
        return size_bytes is None or found == size_bytes

    def add(self, source: BinaryIO, digest: str) -> int:
        """Store the content of an open file; return its size.

        Raises Altered where its content has another digest, OSError.
        """
        target = self.path(digest)
        target.parent.mkdir(parents=True, exist_ok=True)
        copied = copy(source, target, digest)
        sync_directory(target.parent)
        return copied

    def put_into(self, digest: str, target: Path) -> int:
        """Write a stored file to `target`; return its size. Raises Altered, OSError."""
        with self.path(digest).open("rb") as source:
            return copy(source, target, digest)

    def all(self) -> Iterator[str]:
        """Yield the digests of all stored files."""
        for path in sorted(self.root.glob("??/*")):
            if not path.name.startswith(DRAFT):
                yield path.name

    def damaged(self, digests: Collection[str]) -> Iterator[tuple[str, str]]:
        """Read these files; yield the digest and the problem of each missing or altered one."""
        for digest in sorted(digests):
            try:
                with self.path(digest).open("rb") as file:
                    if digest_of(file) != digest:
                        yield digest, "was altered"
            except FileNotFoundError:
                yield digest, "is missing"

    def remove_all_but(self, kept: Collection[str]) -> int:
        """Remove the other files, and what interrupted backups left; return how many bytes."""
        freed = 0
        for path in list(self.root.glob("??/*")):
            if path.name not in kept:
                freed += path.stat().st_size
                path.unlink()
        return freed


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
