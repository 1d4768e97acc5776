"""The files of backups by name, in a directory or a bucket, encrypted where there is a key."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import BinaryIO

from blake3 import blake3

from apps.backups.contents import CHUNK_BYTES, DRAFT, copy, whole
from apps.backups.errors import KeyProblem, NotABackup
from apps.backups.keys import BackupKey, read_key
from apps.backups.places import BackupBucket, BackupDirectory, Place
from apps.checkpoints import objects
from trainops import checkpoint_storage
from trainops.encrypted_files import Altered, content_bytes

DAY_SECONDS = 86_400
MARKER, FORMAT, VERSION = "encryption.json", "trainops-backup-encryption", 1
MAX_MARKER_BYTES = 4096


class BackupStore:
    def __init__(
        self, place: Place, key: BackupKey | None, workspace: Path, address: str = ""
    ) -> None:
        self.place = place
        self.address = address or place.location  # what `opened` was given
        self.key = key
        self.workspace = workspace  # for what is not encrypted

    @property
    def location(self) -> str:
        return self.place.location

    def name_of(self, digest: str) -> str:
        """Return the name of the file with this content."""
        name = digest if self.key is None else self.key.name_of(digest)
        return f"files/{name[:2]}/{name}"

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the size of the content of every file whose name begins with the prefix."""
        sizes = self.place.sizes(prefix)
        if self.key is None:
            return sizes
        return {name: content_bytes(size) for name, size in sizes.items()}

    def write(self, name: str, source: BinaryIO, digest: str = "") -> int:
        """Store the rest of an open file, whole or not at all; return the size of its content.

        Raises Altered where its content has another digest than the given one, OSError.
        """
        reader = _Hashing(source)
        with self.place.draft() as draft:
            draft.touch(mode=0o600, exist_ok=False)
            with draft.open("wb") as file:
                for chunk in self._stored(reader, name):
                    file.write(chunk)
            if digest and reader.hasher.hexdigest() != digest:
                raise Altered
            self.place.put(draft, name)
        return reader.size_bytes

    def _stored(self, source: "_Hashing", name: str) -> Iterator[bytes]:
        if self.key is not None:
            yield from self.key.encrypted(source, name)  # type: ignore[arg-type]
            return
        while chunk := source.read(CHUNK_BYTES):
            yield chunk

    @contextmanager
    def opened(self, name: str) -> Iterator[BinaryIO]:
        """Yield the content of a file. Raises FileNotFoundError, and Altered also later."""
        with self.place.opened(name) as file:
            yield file if self.key is None else self.key.decrypted(file, name)

    def remove(self, name: str) -> None:
        self.place.remove(name)

    def lock(self) -> AbstractContextManager[Callable[[], None]]:
        return self.place.lock()

    @contextmanager
    def local(self, name: str, digest: str) -> Iterator[Path]:
        """Yield the path of a file with this content, which is not to be changed.

        Raises Altered or OSError where it has to be copied and is altered or missing; a file that
        is on this machine is not read.
        """
        path = self.place.path(name)
        if path is not None and self.key is None:
            yield path
            return
        with self._private_draft() as draft:
            with self.opened(name) as source:
                copy(source, draft, digest)
            yield draft

    def draft(self) -> AbstractContextManager[Path]:
        """Yield a path for content that is not encrypted yet."""
        return self.place.draft() if self.key is None else self._private_draft()

    @contextmanager
    def _private_draft(self) -> Iterator[Path]:
        path = self.workspace / f"{DRAFT}{token_hex(8)}"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def is_marked(self) -> bool:
        """Whether there is the mark of encrypted backups. Raises KeyProblem, OSError."""
        return bool(_marked(self))

    def mark(self) -> None:
        """Say in the place of the backups that they are encrypted, and with which key."""
        if self.key is None:
            return
        content = {"format": FORMAT, "version": VERSION, "key_id": self.key.id}
        with self.place.draft() as draft:
            draft.write_text(json.dumps(content))
            self.place.put(draft, MARKER)


class _Hashing:
    """A file that is read once, with the digest and the size of what was read."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self.hasher = blake3()
        self.size_bytes = 0

    def read(self, size: int) -> bytes:
        chunk = self._source.read(size)
        self.hasher.update(chunk)
        self.size_bytes += len(chunk)
        return chunk


def opened(location: str, key: Path | None, workspace: Path) -> BackupStore:
    """Return the backups in a directory, or below a URL of a bucket.

    Raises:
        NotABackup: the URL is none, as for `checkpoint_storage.parse`.
        KeyProblem: the key does not fit the backups that are there.
        OSError: the bucket does not answer.
    """
    store = BackupStore(
        _place(location, workspace), None if key is None else read_key(key), workspace, location
    )
    _require_key(store, key)
    return store


def _place(location: str, workspace: Path) -> Place:
    if "://" not in location:
        return BackupDirectory(Path(location))
    try:
        bucket = checkpoint_storage.parse(location, "The place of the backups")
    except ValueError as error:
        raise NotABackup(str(error)) from None
    return BackupBucket(objects.connected(bucket), str(bucket), workspace)


def _require_key(store: BackupStore, path: Path | None) -> None:
    needed = _marked(store)
    if needed and store.key is None:
        raise KeyProblem(
            f"The backups in {store.location} are encrypted. Name the file of the key with the "
            f"id {needed}: --key FILE"
        )
    if needed and store.key is not None and store.key.id != needed:
        raise KeyProblem(
            f"{path} is another key than that of the backups in {store.location}: "
            f"got the id {store.key.id}; allowed: {needed}."
        )
    if not needed and store.key is not None and _has_snapshots(store):
        raise KeyProblem(
            f"The backups in {store.location} are not encrypted. Use another directory or prefix "
            "for encrypted ones, or omit --key."
        )


def _has_snapshots(store: BackupStore) -> bool:
    try:
        return bool(store.place.sizes("snapshots/"))
    except FileNotFoundError:
        return False


def _marked(store: BackupStore) -> str:
    """Return the id of the key of the backups; empty where they are not encrypted."""
    try:
        with store.place.opened(MARKER) as file:
            content = json.loads(whole(file, MAX_MARKER_BYTES))
        if (content["format"], content["version"]) == (FORMAT, VERSION):
            return str(content["key_id"])
    except FileNotFoundError:
        return ""
    except (ValueError, TypeError, KeyError) as error:
        raise KeyProblem(f"{store.location}/{MARKER} cannot be read: {error}") from error
    raise KeyProblem(f"{store.location}/{MARKER} was written by a newer trainops; update trainops.")


@contextmanager
def workspace(data_dir: Path) -> Iterator[Path]:
    """Yield a private directory for one command; remove what killed ones left a day ago."""
    root = data_dir / "backup-drafts"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in root.iterdir():
        if left.stat().st_mtime < time.time() - DAY_SECONDS:
            shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(dir=root) as name:
        yield Path(name)
    with suppress(OSError):  # another command uses it
        root.rmdir()
