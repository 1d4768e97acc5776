"""The storage of checkpoints as `apps.installation` recognises it: a directory or a bucket."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from django.conf import settings

from apps.checkpoints import remote, storage
from apps.checkpoints.encrypted_objects import EncryptedObjects
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.trying import Missing, RetryPolicy, retried
from apps.installation import storages
from trainops.runtime.checkpoint import storage_identity

T = TypeVar("T")
NAME = "checkpoints"
OBJECT = f".trainops/{storage_identity.FILE}"  # in a folder: a missing object is looked for there
NUM_LOOKED_FOR = 20  # checkpoints of rows, of which one must be there
ONCE = RetryPolicy(tries=1)  # it is asked again in seconds


def require() -> str:
    """Return the id of the storage. Raises OSError where it is away, foreign or does not answer."""
    return storages.require(here())


def problem() -> str:
    """Return why the storage cannot be used now; empty where it can."""
    return storages.problem(here())


def here() -> storages.StorageLocation:
    if settings.CHECKPOINT_BUCKET is not None:
        chosen = settings.CHECKPOINT_BUCKET
        objects = remote.quick(chosen, settings.CHECKPOINT_SECRET_KEYS)
        return BucketPlace(objects, str(chosen))
    return DirectoryPlace(settings.CHECKPOINT_ROOT)


class DirectoryPlace:
    name = NAME

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def location(self) -> str:
        return str(self.root)

    def read_id(self) -> str | None:
        return storage_identity.read(self.root)

    def write_id(self, storage_id: str) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        storage_identity.write(self.root, storage_id)

    def is_used(self) -> bool:
        return any(self.root.glob("op_*/a*"))

    def num_rows(self) -> int:
        return Checkpoint.objects.count()

    def holds_some(self) -> bool:
        return any(storage.directory(path).exists() for path in _newest_paths())


class BucketPlace:
    name = NAME

    def __init__(self, objects: EncryptedObjects, location: str) -> None:
        self.objects = objects
        self._location = location

    @property
    def location(self) -> str:
        return self._location

    def read_id(self) -> str | None:
        with TemporaryDirectory() as directory:
            path = Path(directory) / storage_identity.FILE
            try:
                _once(partial(self.objects.get, OBJECT, path, threading.Event()))
            except Missing:
                return None
            with path.open("rb") as file:
                content = file.read(storage_identity.MAX_BYTES)
            storage_id = storage_identity.parse(content, self.location)
        if not _once(partial(self.objects.is_there_for_each, OBJECT)):
            self.write_id(storage_id)  # processes without a key then refuse the storage
        return storage_id

    def write_id(self, storage_id: str) -> None:
        with TemporaryDirectory() as directory:
            path = Path(directory) / storage_identity.FILE
            path.write_bytes(storage_identity.content(storage_id))
            _once(partial(self.objects.put_for_each, path, OBJECT, threading.Event()))

    def is_used(self) -> bool:
        names = (each.name.rpartition("/")[0] for each in self.objects.all())
        return _once(lambda: any(map(storage.is_artifacts_path, names)))

    def num_rows(self) -> int:
        return Checkpoint.objects.count()

    def holds_some(self) -> bool:
        return any(map(self._has, map(storage.manifest_location, _newest_paths())))

    def _has(self, name: str) -> bool:
        try:
            _once(partial(self.objects.size, name))
        except Missing:
            return False
        return True


def _once(call: Callable[[], T]) -> T:
    return retried(call, ONCE, threading.Event())


def _newest_paths() -> list[str]:
    """Return where the newest rows' files are; those without any are left out."""
    paths = Checkpoint.objects.order_by("-created_at").values_list("artifacts_path", flat=True)
    return [path for path in paths[:NUM_LOOKED_FOR] if storage.is_artifacts_path(path)]
