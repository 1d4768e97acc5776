"""Files in an object store, through django-storages: what any of its kinds can do, and S3 better.

A name is `OPERATION/DIRECTORY/FILE`; the bucket's prefix comes before it. Nothing here is tried
again (apps.checkpoints.trying does that), and nothing is held in memory whole.
"""

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from django.core.files import File
from django.core.files.storage import storages
from django.utils.module_loading import import_string

from apps.checkpoints.trying import Missing, NobodyWaits, explained, status_of
from trainops.checkpoint_storage import Bucket

logger = logging.getLogger(__name__)
CHUNK_BYTES = 2**20
NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Object:
    name: str
    size_bytes: int
    changed_at: float  # seconds since 1970, by the clock of the storage


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An upload in parts that was never completed: it has no object, but takes space."""

    name: str
    upload_id: str
    began_at: float


class Content(Protocol):
    """What an object is to have."""

    @property
    def size_bytes(self) -> int: ...

    def open(self) -> BinaryIO:
        """Return it, to be read from any position."""


@dataclass(frozen=True, slots=True)
class FileContent:
    path: Path

    @property
    def size_bytes(self) -> int:
        return self.path.stat().st_size

    def open(self) -> BinaryIO:
        return self.path.open("rb")


class Objects(Protocol):
    """What an object store must be able to do. Errors are those of its library, and these two:

    Missing where it does not have the object, NobodyWaits where `stop` was set meanwhile.
    """

    def put(self, content: Content, name: str, stop: threading.Event) -> None:
        """Upload it: whole or not at all."""

    def get(self, name: str, path: Path, stop: threading.Event) -> None:
        """Download into a new file."""

    def size(self, name: str) -> int:
        """Return its bytes, without reading them."""

    def remove(self, name: str) -> None:
        """Remove it; nothing happens if it is not there."""

    def all(self, prefix: str = "") -> Iterator[Object]:
        """Return everything whose name begins so."""

    def link(self, name: str, file_name: str) -> str | None:
        """Return a URL that serves it for an hour without any other credential.

        None where the credentials of this process cannot sign one.
        """

    def unfinished(self) -> Iterator[Unfinished]:
        """Return uploads that were never completed."""

    def forget(self, upload: Unfinished) -> None:
        """Remove what an upload that was never completed left."""


def connected(bucket: Bucket, *, is_quick: bool = False) -> Objects:
    """Return the objects of a bucket; `is_quick`: who asks would rather have no answer than wait.

    Without any request: whether it is there, the first call finds out.
    """
    storage = storages.create_storage(bucket.backend())
    if bucket.scheme == "s3":  # loaded only where it is used: boto3 is large
        made: Objects = import_string("apps.checkpoints.s3.S3Objects")(storage, is_quick=is_quick)
        return made
    return StorageObjects(storage)


class StorageObjects:
    """Google Cloud Storage and Azure, as django-storages serves them."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage

    def put(self, content: Content, name: str, stop: threading.Event) -> None:
        with content.open() as file:
            saved = self._storage.save(name, File(file))
        if saved != name:  # never: both overwrite
            raise RuntimeError(f"{name} was stored as {saved}")

    def get(self, name: str, path: Path, stop: threading.Event) -> None:
        try:
            with self._storage.open(name) as remote, path.open("xb") as file:
                for chunk in iter(lambda: remote.read(CHUNK_BYTES), b""):
                    if stop.is_set():
                        raise NobodyWaits
                    file.write(chunk)
        except Exception as error:
            path.unlink(missing_ok=True)
            raise self._missing_or(error, name) from error

    def size(self, name: str) -> int:
        try:
            return int(self._storage.size(name))
        except Exception as error:
            raise self._missing_or(error, name) from error

    def remove(self, name: str) -> None:
        if self._storage.exists(name):
            self._storage.delete(name)

    def all(self, prefix: str = "") -> Iterator[Object]:
        for name in self._names(prefix.rstrip("/")):
            try:
                changed_at = self._storage.get_modified_time(name).timestamp()
                size_bytes = int(self._storage.size(name))
            except Exception as error:
                if not _is_absent(error):
                    raise
                continue  # removed since it was listed
            yield Object(name, size_bytes, changed_at)

    def link(self, name: str, file_name: str) -> str | None:
        try:
            return str(self._storage.url(name))
        except Exception as error:  # noqa: BLE001 - a machine's own account has no key to sign with
            logger.info("no link to %s can be signed, so web sends it: %s", name, explained(error))
            return None

    def unfinished(self) -> Iterator[Unfinished]:
        return iter(())  # both stores drop parts by themselves after a week

    def forget(self, upload: Unfinished) -> None:
        raise NotImplementedError(
            f"{upload.name}: this storage does not support unfinished uploads"
        )

    def _names(self, folder: str) -> Iterator[str]:
        """Google lists one level, by last names; Azure all that is below, by names from the top."""
        folders, names = self._storage.listdir(folder)
        top = f"{self._storage.location}/" if self._storage.location else ""
        for name in names:
            if "/" not in name:
                yield f"{folder}/{name}" if folder else name
            elif name.startswith(top):  # the whole container, when asked for everything
                yield name.removeprefix(top)
        for inner in folders:
            yield from self._names(f"{folder}/{inner}" if folder else inner)

    def _missing_or(self, error: Exception, name: str) -> Exception:
        """A bucket that is gone must not look like a file that is gone: it cannot be listed."""
        if _is_absent(error) and name not in self._names(name.rpartition("/")[0]):
            return Missing(name)
        return error


def _is_absent(error: Exception) -> bool:
    return isinstance(error, FileNotFoundError) or status_of(error) == NOT_FOUND
