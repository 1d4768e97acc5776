"""Whole checkpoints in a bucket: uploaded manifest last, downloaded and verified before they count.

The bucket holds `OPERATION/DIRECTORY/FILE`, as the local disk does; but where checkpoints share a
file, it is there once, in the directory that it was written for. A directory belongs to one
attempt, so two that are at work never write the same object; what a ghost uploads late, no row
owns, and the sweep removes it.
"""

import logging
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import BinaryIO

from django.conf import settings

from apps.checkpoints import objects, storage
from apps.checkpoints.encrypted_objects import EncryptedObjects
from apps.checkpoints.fetching import Fetch, new_draft
from apps.checkpoints.removals import REMOVALS
from apps.checkpoints.storage import Stored
from apps.checkpoints.trying import Missing, RetryPolicy, StorageFailed, TooLarge, retried
from trainops.checkpoint_storage import Bucket
from trainops.runtime.checkpoint.durable import require_space
from trainops.runtime.checkpoint.manifest import (
    MANIFEST,
    Artifact,
    open_verified,
    read_manifest,
)
from trainops.runtime.errors import CheckpointCorrupted

logger = logging.getLogger(__name__)
BACKGROUND = RetryPolicy(tries=8)  # only a background thread waits: two minutes of pauses
ASKED = RetryPolicy(tries=2, first_seconds=0.5)  # a person waits
PROBE = ".ready"


def bucket() -> "Remote | None":
    """Return where checkpoints are kept, or None where that is a directory."""
    chosen: Bucket | None = settings.CHECKPOINT_BUCKET
    return None if chosen is None else _connected(chosen, settings.CHECKPOINT_SECRET_KEYS)


@lru_cache(maxsize=8)
def _connected(chosen: Bucket, secret_keys: tuple[bytes, ...]) -> "Remote":
    return Remote(EncryptedObjects(objects.connected(chosen), secret_keys))


class Remote:
    """Calls that take a `stop` raise NobodyWaits soon after it is set."""

    def __init__(self, store: EncryptedObjects) -> None:
        self.objects = store

    def upload(self, artifacts_path: str, stop: threading.Event) -> None:
        """Upload a staged directory; without its manifest, which goes last, nothing of it counts.

        What it shares with earlier checkpoints is there already. Raises StorageFailed, or
        CheckpointCorrupted where the staged manifest is none, or what it refers to is gone.
        """
        directory = storage.directory(artifacts_path)
        names = {
            artifact.name: storage.location(artifacts_path, artifact)
            for artifact in read_manifest(directory).artifacts
            if not self._is_there(artifacts_path, artifact, stop)
        }
        if (directory / storage.SIGNATURE).exists():
            names[storage.SIGNATURE] = storage.signature_location(artifacts_path)
        manifest = (MANIFEST, storage.manifest_location(artifacts_path))
        for file, name in [*names.items(), manifest]:
            retried(partial(self.objects.put, directory / file, name, stop), BACKGROUND, stop)

    def _is_there(self, artifacts_path: str, artifact: Artifact, stop: threading.Event) -> bool:
        """Whether an earlier checkpoint brought the file. Raises CheckpointCorrupted.

        What is gone that this same attempt wrote can be uploaded again; another's cannot.
        """
        if not artifact.home:
            return False
        name = storage.location(artifacts_path, artifact)
        try:
            found = retried(partial(self.objects.size, name), BACKGROUND, stop)
        except Missing:
            found = None
        if found == artifact.size_bytes:
            return True
        if not storage.is_of_one_attempt(artifacts_path, artifact.home):
            directory = storage.directory(artifacts_path)
            raise CheckpointCorrupted(
                directory, missing=[artifact.name], reason="it no longer exists"
            )
        return False

    def download(self, artifacts_path: str, digest: str | None, stop: threading.Event) -> None:
        """Make the checkpoint's directory on this machine's disk: whole, or not at all.

        Raises CheckpointCorrupted where a file is missing or altered, StorageFailed.
        """
        directory = storage.directory(artifacts_path)
        with new_draft(directory) as draft:
            found = Fetch(self.objects, artifacts_path, draft, BACKGROUND, stop)
            for artifact in found.manifest(digest).artifacts:
                found.file(artifact)
            try:
                draft.rename(directory)
            except OSError:
                if not directory.exists():
                    raise
                # Another process of this machine was faster.

    def fetch(self, artifacts_path: str) -> None:
        """Do what `download` does while a caller waits, without a digest of the manifest."""
        self.download(artifacts_path, None, threading.Event())

    def has(self, name: str) -> bool:
        """Whether there is an object of this name. Raises StorageFailed."""
        try:
            retried(partial(self.objects.size, name), ASKED, threading.Event())
        except Missing:
            return False
        return True

    def read(self, name: str, *, max_bytes: int) -> bytes | None:
        """Return a small object's content; None where there is none.

        Raises TooLarge, StorageFailed.
        """
        with TemporaryDirectory() as room:
            path, stop = Path(room) / "object", threading.Event()
            call = partial(self.objects.get, name, path, stop, max_bytes=max_bytes)
            try:
                retried(call, ASKED, stop)
            except Missing:
                return None
            with path.open("rb") as file:
                content = file.read(max_bytes + 1)
        if len(content) > max_bytes:  # it was replaced meanwhile
            raise TooLarge(name, len(content), max_bytes)
        return content

    def write(self, name: str, content: bytes) -> None:
        """Write a small object. Raises StorageFailed."""
        with TemporaryDirectory() as room:
            path = Path(room) / "object"
            path.write_bytes(content)
            stop = threading.Event()
            retried(partial(self.objects.put, path, name, stop), ASKED, stop)

    def verify(self, artifacts_path: str, digest: str) -> None:
        """Read every byte in the bucket, with one file at a time on this disk.

        Raises CheckpointCorrupted, which lists every file that is missing or altered, and
        StorageFailed.
        """
        directory, stop = storage.directory(artifacts_path), threading.Event()
        missing, altered = [], []
        with new_draft(directory) as draft:
            found = Fetch(self.objects, artifacts_path, draft, ASKED, stop)
            for artifact in found.manifest(digest).artifacts:
                try:
                    found.file(artifact)
                except CheckpointCorrupted as error:
                    missing += error.missing
                    altered += error.altered
                (draft / artifact.name).unlink(missing_ok=True)
        if missing or altered:
            raise CheckpointCorrupted(directory, missing=missing, altered=altered)

    def look(self, artifacts_path: str, artifacts: Sequence[Artifact]) -> None:
        """Compare what is there with the names and sizes, in one listing and without reading it.

        Raises CheckpointCorrupted, StorageFailed.
        """
        prefix, stop = f"{artifacts_path.partition('/')[0]}/", threading.Event()
        found = retried(lambda: list(self.objects.all(prefix)), ASKED, stop)
        there = {each.name: each.size_bytes for each in found}
        sizes = {each.name: there.get(storage.location(artifacts_path, each)) for each in artifacts}
        missing = [name for name, size in sizes.items() if size is None]
        if storage.manifest_location(artifacts_path) not in there:
            missing.append(MANIFEST)
        altered = [
            each.name for each in artifacts if sizes[each.name] not in (None, each.size_bytes)
        ]
        if missing or altered:
            directory = storage.directory(artifacts_path)
            raise CheckpointCorrupted(directory, missing=missing, altered=altered)

    @contextmanager
    def opened(self, artifacts_path: str, artifact: Artifact) -> Iterator[BinaryIO]:
        """Yield one verified file: the copy on this disk, else a download that is there meanwhile.

        Raises CheckpointCorrupted where the bucket's is missing or altered, StorageFailed.
        """
        directory, stop = storage.directory(artifacts_path), threading.Event()
        with ExitStack() as stack:
            try:
                file = stack.enter_context(open_verified(directory, artifact))
            except CheckpointCorrupted:
                draft = stack.enter_context(new_draft(directory))
                require_space(draft, artifact.size_bytes)
                Fetch(self.objects, artifacts_path, draft, ASKED, stop).file(artifact)
                file = stack.enter_context((draft / artifact.name).open("rb"))
            yield file

    def link(self, artifacts_path: str, artifact: Artifact, file_name: str) -> str | None:
        """Return a URL that serves one file for an hour; None where it has to be read from here.

        Raises CheckpointCorrupted where the file is missing or has another size, StorageFailed.
        """
        directory = storage.directory(artifacts_path)
        name = storage.location(artifacts_path, artifact)
        try:
            size = retried(partial(self.objects.size, name), ASKED, threading.Event())
        except Missing:
            raise CheckpointCorrupted(directory, missing=[artifact.name]) from None
        if size != artifact.size_bytes:
            raise CheckpointCorrupted(directory, altered=[artifact.name])
        return self.objects.link(name, file_name)

    def remove_later(self, names: Iterable[str]) -> None:
        """Remove objects in a moment; what that leaves, the sweep removes."""
        REMOVALS.add(partial(self._remove, list(names)))

    def _remove(self, names: Sequence[str]) -> None:
        try:
            self.remove(names)
        except StorageFailed as error:
            logger.warning("%s are left to the sweep: %s", ", ".join(names), error)

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects, manifests first. Raises StorageFailed."""
        for name in sorted(names, key=lambda name: not name.endswith(MANIFEST)):
            retried(partial(self.objects.remove, name), ASKED, threading.Event())

    def names_of(self, operation_id: str) -> list[str]:
        """Return the names of all objects of an operation. Raises StorageFailed."""
        found = retried(
            lambda: list(self.objects.all(f"{operation_id}/")), ASKED, threading.Event()
        )
        return [each.name for each in found]

    def stored(self, besides: Collection[str] = (), operation_id: str = "") -> list[Stored]:
        """Return what there is by checkpoint, owned by a row or not, besides some objects.

        Of one operation only, where it is named. Raises StorageFailed.
        """
        prefix = f"{operation_id}/" if operation_id else ""
        everything = retried(lambda: list(self.objects.all(prefix)), ASKED, threading.Event())
        directories: dict[str, list[objects.Object]] = defaultdict(list)
        for each in everything:
            if each.name not in besides:
                directories[each.name.rpartition("/")[0]].append(each)
        return [
            Stored(
                artifacts_path,
                size_bytes=sum(each.size_bytes for each in found),
                changed_at=max(each.changed_at for each in found),
                is_whole=any(each.name.endswith(f"/{MANIFEST}") for each in found),
                names=tuple(each.name for each in found),
            )
            for artifacts_path, found in directories.items()
            if storage.is_artifacts_path(artifacts_path)
        ]

    def unfinished(self) -> Iterator[tuple[Stored, partial[None]]]:
        """Yield what uploads that were never completed left, and the call that removes it."""
        for each in retried(lambda: list(self.objects.unfinished()), ASKED, threading.Event()):
            artifacts_path = each.name.rpartition("/")[0]
            if storage.is_artifacts_path(artifacts_path):
                call = partial(self.objects.forget, each)
                forget = partial(retried, call, ASKED, threading.Event())
                yield Stored(artifacts_path, size_bytes=0, changed_at=each.began_at), forget


def probe(chosen: Bucket) -> None:
    """Write, read and remove a small object, without retries. Raises StorageFailed."""
    store = quick(chosen, settings.CHECKPOINT_SECRET_KEYS)
    name, once, stop = f"{PROBE}/{token_hex(4)}", RetryPolicy(tries=1), threading.Event()
    with TemporaryDirectory() as room:
        sent, received = Path(room) / "sent", Path(room) / "received"
        sent.write_bytes(b"ready")
        retried(partial(store.put, sent, name, stop), once, stop)
        try:
            retried(partial(store.get, name, received, stop), once, stop)
        except Missing:
            raise StorageFailed("the data written just now cannot be read") from None
        retried(partial(store.remove, name), once, stop)


@lru_cache(maxsize=8)
def quick(chosen: Bucket, secret_keys: tuple[bytes, ...]) -> EncryptedObjects:
    """Return the objects of a bucket for who would rather have no answer than wait."""
    return EncryptedObjects(objects.connected(chosen, is_quick=True), secret_keys)
