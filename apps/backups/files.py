"""The files of checkpoints and datasets in backups: each once, by the digest of its content."""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from apps.backups.contents import copy, digest_of
from apps.backups.store import BackupStore
from trainops.encrypted_files import Altered

PREFIX = "files/"
OWN = re.compile(rf"{PREFIX}([0-9a-f]{{2}})/\1[0-9a-f]{{62}}")


class BackupFiles:
    def __init__(self, store: BackupStore) -> None:
        self.store = store

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The size of every stored file by name: one listing instead of a request for each."""
        return self.store.sizes(PREFIX)

    def size(self, digest: str, expected: int | None = None) -> int | None:
        """Return the size of a stored file; None where it is not, or has another than expected."""
        found = self.sizes.get(self.store.name_of(digest))
        return found if found is not None and expected in (None, found) else None

    def add(self, source: BinaryIO, digest: str) -> int:
        """Store the content of an open file; return its size.

        Raises Altered where its content has another digest, OSError.
        """
        name = self.store.name_of(digest)
        self.sizes[name] = self.store.write(name, source, digest)
        return self.sizes[name]

    def put_into(self, digest: str, target: Path) -> int:
        """Write a stored file to `target`; return its size. Raises Altered, OSError."""
        with self.store.opened(self.store.name_of(digest)) as source:
            return copy(source, target, digest)

    def local(self, digest: str) -> AbstractContextManager[Path]:
        """Yield the path of a file with this content, as `BackupStore.local`."""
        return self.store.local(self.store.name_of(digest), digest)

    def damaged(self, sizes: Mapping[str, int]) -> Iterator[tuple[str, str]]:
        """Read these files; yield the digest and the problem of each missing or altered one."""
        for digest in sorted(sizes):
            try:
                with self.store.opened(self.store.name_of(digest)) as file:
                    is_intact = digest_of(file) == digest
            except FileNotFoundError:
                yield digest, "is missing"
            except Altered:
                yield digest, "was altered"
            else:
                if not is_intact:
                    yield digest, "was altered"

    def of_other_size(self, sizes: Mapping[str, int]) -> Iterator[tuple[str, str]]:
        """Yield what `damaged` does as far as one listing shows it."""
        for digest, size_bytes in sorted(sizes.items()):
            if self.size(digest) is None:
                yield digest, "is missing"
            elif self.size(digest, size_bytes) is None:
                yield digest, "was altered"

    def remove_all_but(self, kept: Collection[str]) -> int:
        """Remove the other files of backups; return how many bytes."""
        names, freed = {self.store.name_of(digest) for digest in kept}, 0
        for name, size_bytes in self.store.sizes(PREFIX).items():
            if OWN.fullmatch(name) and name not in names:
                freed += size_bytes
                self.store.remove(name)
        return freed
