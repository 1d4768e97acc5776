"""Where the normalised files lie: `STORAGES["datasets"]`, a directory or an object store.

A file is named by the BLAKE3 of its bytes, appears whole or not at all, and is checked when it is
read.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO

from blake3 import blake3
from django.conf import settings
from django.core.files import File
from django.core.files.base import ContentFile
from django.core.files.storage import Storage, storages

from apps.datasets.models import Dataset
from trainops.runtime.checkpoint import storage_identity

CHUNK = 1024**2
NUM_LOOKED_FOR = 20  # files of rows, of which one must be there
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Damaged(Exception):
    """The bytes are missing or are not those that the digest promises."""


def digest_of(path: Path) -> str:
    return hasher_of(path).hexdigest()


def hasher_of(path: Path) -> blake3:
    """Return the hasher that has read the whole file."""
    hasher = blake3()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            hasher.update(chunk)
    return hasher


@contextmanager
def workspace() -> Iterator[Path]:
    """A directory for one upload, on the data disk; gone afterwards, whatever happened."""
    root = settings.DATA_DIR / "uploads"
    root.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=root, prefix="upload-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def put(source: Path, digest: str) -> None:
    """Store a copy of `source`; harmless when it is there already or stored twice at once."""
    storage = _storage()
    if (path := _local(storage, digest)) is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _copy_durably(source, path)
        return
    name = _name(digest)
    if storage.exists(name):
        return
    with source.open("rb") as file:
        saved = storage.save(name, File(file))
    if saved != name:  # another request stored the same bytes meanwhile
        storage.delete(saved)


def exists(digest: str) -> bool:
    return _storage().exists(_name(digest))


def remove(digest: str) -> None:
    _storage().delete(_name(digest))


def stored() -> Iterator[tuple[str, datetime]]:
    """Every file there is, as (digest, time of its last change)."""
    storage = _storage()
    try:
        _, names = storage.listdir("")
    except FileNotFoundError:
        return  # nothing was ever stored
    for name in names:
        digest = name.removesuffix(".parquet")
        if _DIGEST.fullmatch(digest):
            with suppress(FileNotFoundError):
                yield digest, storage.get_modified_time(name)


def local_copy(digest: str) -> Path:
    """The file on this machine's disk, verified. Raises Damaged, or OSError if the disk is full."""
    storage = _storage()
    path = _local(storage, digest)
    if path is None:
        return _cached(storage, digest)
    try:
        intact = digest_of(path) == digest
    except FileNotFoundError:
        raise Damaged("is missing") from None
    if not intact:
        raise Damaged("was altered")
    return path


def _cached(storage: Storage, digest: str) -> Path:
    """From the cache of a remote storage, downloaded if need be; the cache stays bounded."""
    directory = settings.DATA_DIR / "cache" / "datasets"
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / _name(digest)
    if not path.exists() or digest_of(path) != digest:
        _download(storage, digest, path)
        _evict(directory, keep=path)
    os.utime(path)  # the cache forgets what was not used for longest
    return path


def _download(storage: Storage, digest: str, path: Path) -> None:
    draft = path.with_name(f".{digest}.{token_hex(4)}.part")
    try:
        with _as_os_errors(), storage.open(_name(digest)) as remote, draft.open("wb") as file:
            for chunk in remote.chunks(CHUNK):
                file.write(chunk)
            _sync(file)
        if digest_of(draft) != digest:
            raise Damaged("was altered")
        draft.replace(path)
    except FileNotFoundError:
        raise Damaged("is missing") from None
    finally:
        draft.unlink(missing_ok=True)


def _evict(directory: Path, *, keep: Path) -> None:
    """Forget the files unused for longest until the rest fit; never one of the last 10 minutes."""
    files = sorted(directory.glob("*.parquet"), key=lambda path: path.stat().st_mtime)
    excess = sum(path.stat().st_size for path in files) - cache_bytes()
    newest = keep.stat().st_mtime
    for path in files:
        if excess <= 0 or path.stat().st_mtime > newest - 600:
            return
        excess -= path.stat().st_size
        path.unlink(missing_ok=True)


def require_writable() -> None:
    """Raise OSError where the directory of datasets cannot be written. A bucket is not asked."""
    try:
        root = _storage().path("")
    except NotImplementedError:
        return
    with TemporaryFile(dir=root) as file:
        file.write(b"ready")


class _DatasetStorage:
    """The storage of datasets as `apps.installation` recognises it."""

    name = "datasets"

    @property
    def location(self) -> str:
        root = self._root()
        return str(root) if root else type(_storage()).__name__

    def read_id(self) -> str | None:
        if (root := self._root()) is not None:
            return storage_identity.read(root)
        try:
            with _as_os_errors(), _storage().open(storage_identity.FILE) as file:
                content = file.read()
        except FileNotFoundError:
            return None
        return storage_identity.parse(content, self.location)

    def write_id(self, storage_id: str) -> None:
        if (root := self._root()) is not None:
            root.mkdir(parents=True, exist_ok=True)
            storage_identity.write(root, storage_id)
            return
        with _as_os_errors():
            _storage().delete(storage_identity.FILE)  # some would save under another name
            content = ContentFile(storage_identity.content(storage_id))
            _storage().save(storage_identity.FILE, content)

    def is_used(self) -> bool:
        return any(True for _ in stored())

    def num_rows(self) -> int:
        return Dataset.objects.count()

    def holds_some(self) -> bool:
        digests = Dataset.objects.order_by("-created_at").values_list("digest", flat=True)
        return any(map(exists, digests[:NUM_LOOKED_FOR]))

    def _root(self) -> Path | None:
        try:
            return Path(_storage().path(""))
        except NotImplementedError:
            return None


@contextmanager
def _as_os_errors() -> Iterator[None]:
    """Raise OSError for each error of the library of an object store."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(" ".join(f"{type(error).__name__}: {error}".split())) from error


PLACE = _DatasetStorage()


def cache_bytes() -> int:
    limit: int = getattr(settings, "DATASET_CACHE_BYTES", 20 * 1024**3)
    return limit


def _copy_durably(source: Path, path: Path) -> None:
    draft = path.with_name(f".{path.name}.{token_hex(4)}.part")
    try:
        with source.open("rb") as reader, draft.open("wb") as writer:
            shutil.copyfileobj(reader, writer, CHUNK)
            _sync(writer)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _storage() -> Storage:
    return storages["datasets"]


def _local(storage: Storage, digest: str) -> Path | None:
    try:
        return Path(storage.path(_name(digest)))
    except NotImplementedError:
        return None


def _name(digest: str) -> str:
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"not a digest: {digest!r}")
    return f"{digest}.parquet"
