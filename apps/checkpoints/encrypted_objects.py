"""The objects of checkpoints, encrypted by keys that the provider of the bucket does not have.

With keys (TRAINOPS_CHECKPOINT_KEY_FILE), `NAME` is stored as `NAME.key-ID`, with the id of the
first key. What was stored without a key, or with one of the others, is read as before. Without
keys, objects are stored as they are; an encrypted one is then no missing one.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from apps.checkpoints.objects import FileContent, Object, Objects, Unfinished
from apps.checkpoints.trying import Missing, OtherKey, TooLarge
from trainops import checkpoint_storage
from trainops.encrypted_files import Altered, FileKey, content_bytes, stored_bytes

MARK = ".key-"


@dataclass(frozen=True, slots=True)
class EncryptedContent:
    """What is stored under a name for a file."""

    path: Path
    key: FileKey
    name: str

    @property
    def size_bytes(self) -> int:
        return stored_bytes(self.path.stat().st_size)

    def open(self) -> BinaryIO:
        return self.key.opened(self.path, self.name)


class EncryptedObjects:
    """As `Objects`, by the names and with the contents that they have without encryption."""

    def __init__(self, store: Objects, secrets: Sequence[bytes] = ()) -> None:
        self.store = store
        self._keys = [FileKey(secret, "checkpoints") for secret in secrets]

    def put(self, path: Path, name: str, stop: threading.Event) -> None:
        """Upload a file: whole or not at all."""
        if not self._keys:
            self.store.put(FileContent(path), name, stop)
            return
        newest, *others = [place for place, _ in self._places(name)]
        self.store.put(EncryptedContent(path, self._keys[0], name), newest, stop)
        for place in others:
            if place != newest:
                self.store.remove(place)

    def get(
        self, name: str, path: Path, stop: threading.Event, *, max_bytes: int | None = None
    ) -> None:
        """Download into a new file. What was altered ends where it was: its digest is another.

        With a maximum, the size is asked for first. Raises TooLarge where that is larger.
        """
        for place, key in self._places(name):
            with suppress(Missing):
                if max_bytes is not None:
                    self._require_size(place, key, max_bytes)
                self.store.get(place, path, stop)
                if key is not None:
                    with suppress(Altered):
                        key.decrypt_in_place(path, name)
                return
        raise self._missing(name)

    def size(self, name: str) -> int:
        """Return the bytes of its content; -1 where they cannot be those of an encrypted one."""
        for place, key in self._places(name):
            with suppress(Missing):
                size = self.store.size(place)
                return size if key is None else content_bytes(size)
        raise self._missing(name)

    def put_for_each(self, path: Path, name: str, stop: threading.Event) -> None:
        """Upload a file once for each key, so that processes with any of them read it."""
        if not self._keys:
            self.store.put(FileContent(path), name, stop)
            return
        for key in self._keys:
            self.store.put(EncryptedContent(path, key, name), f"{name}{MARK}{key.id}", stop)
        self.store.remove(name)

    def is_there_for_each(self, name: str) -> bool:
        """Whether what is there is as `put_for_each` stores it: not in the clear, for each key."""
        if not self._keys:
            return True
        found = set(self._stored(name))
        return name not in found and found >= {f"{name}{MARK}{key.id}" for key in self._keys}

    def remove(self, name: str) -> None:
        """Remove it, whatever the key; nothing happens if it is not there."""
        for place in self._stored(name):
            self.store.remove(place)

    def all(self, prefix: str = "") -> Iterator[Object]:
        """Return everything whose name begins so."""
        for each in self.store.all(prefix):
            name, mark, _ = each.name.partition(MARK)
            size_bytes = content_bytes(each.size_bytes) if mark else each.size_bytes
            yield replace(each, name=name, size_bytes=size_bytes)

    def link(self, name: str, file_name: str) -> str | None:
        """Return a URL that serves it for an hour; None where it is encrypted or has none."""
        is_plain = not self._keys or self._has(name)
        return self.store.link(name, file_name) if is_plain else None

    def unfinished(self) -> Iterator[Unfinished]:
        return self.store.unfinished()

    def forget(self, upload: Unfinished) -> None:
        self.store.forget(upload)

    def _require_size(self, place: str, key: FileKey | None, max_bytes: int) -> None:
        size = self.store.size(place)
        allowed = max_bytes if key is None else stored_bytes(max_bytes)
        if size > allowed:
            raise TooLarge(place, size, allowed)

    def _has(self, place: str) -> bool:
        try:
            self.store.size(place)
        except Missing:
            return False
        return True

    def _places(self, name: str) -> list[tuple[str, FileKey | None]]:
        """Return where it may be stored, the place of new ones first."""
        encrypted = [(f"{name}{MARK}{key.id}", key) for key in self._keys]
        return [*encrypted, (name, None)]

    def _stored(self, name: str) -> list[str]:
        """Return where it is stored, also with keys that are not here."""
        folder = f"{name.rpartition('/')[0]}/"
        names = [each.name for each in self.store.all(folder)]
        return [each for each in names if each == name or each.startswith(name + MARK)]

    def _missing(self, name: str) -> Exception:
        """Whether it is missing: what another key encrypted cannot be read, but is there."""
        ids = [each.removeprefix(name + MARK) for each in self._stored(name) if each != name]
        if not ids:
            return Missing(name)
        allowed = ", ".join(key.id for key in self._keys) or "none"
        return OtherKey(
            f"{name} is encrypted with the key {ids[0]}; keys in "
            f"{checkpoint_storage.KEY_VARIABLE}: {allowed}"
        )
