"""Make a backup while everything runs.

The rows come first and their files after them, so that a file may be deleted in between. What a
clean-up or a newer checkpoint took away is no longer wanted by any row: then the database is
copied once more, which finds nearly every file stored already.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC
from pathlib import Path
from threading import Event

from django.conf import settings
from django.db import DatabaseError, transaction
from django.utils import timezone

from apps.backups import database, snapshots
from apps.backups.contents import digest_of
from apps.backups.errors import BackupProblem
from apps.backups.files import BackupFiles
from apps.backups.snapshots import DATABASE, Loss, Snapshot
from apps.backups.store import BackupStore
from apps.checkpoints import place as checkpoints
from apps.checkpoints import remote, storage
from apps.checkpoints.fetching import Fetch, new_draft
from apps.checkpoints.models import Checkpoint
from apps.datasets import storage as datasets
from apps.datasets.models import Dataset
from apps.installation import storages
from apps.installation.models import BackupPlace, StorageBinding
from trainops.encrypted_files import Altered
from trainops.runtime.checkpoint.manifest import MANIFEST, read_manifest
from trainops.runtime.errors import CheckpointCorrupted
from trainops.version import VERSION

logger = logging.getLogger(__name__)

TRIES = 5  # copies of the database, while files of its rows disappear


@dataclass(frozen=True, slots=True)
class Made:
    name: str
    snapshot: Snapshot
    copied_bytes: int  # not stored by an earlier backup
    not_thinned: str = ""  # why older backups were not deleted


@dataclass(slots=True)
class _BackupContent:
    """What one copy of the database needs, as far as it was found."""

    stored: BackupFiles
    storages: dict[str, str] = field(default_factory=dict)
    checkpoints: dict[str, str] = field(default_factory=dict)
    datasets: list[str] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    copied_bytes: int = 0  # of all copies

    def fill(self, path: Path) -> None:
        """Copy the database to `path`, in place of an earlier copy, and what its rows have."""
        path.unlink(missing_ok=True)
        for each in (self.checkpoints, self.datasets, self.files, self.losses):
            each.clear()
        bindings, rows, digests = database.snapshot(
            path,
            (
                str(StorageBinding.objects.values_list("name", "storage_id").query),
                str(Checkpoint.objects.values_list("artifacts_path", "manifest_digest").query),
                str(Dataset.objects.values_list("digest").query),
            ),
        )
        self.storages = dict(bindings)
        for artifacts_path, manifest_digest in rows:
            if storage.is_artifacts_path(artifacts_path):  # others have no files
                self.add_checkpoint(artifacts_path, manifest_digest)
        for (digest,) in digests:
            self.add_dataset(digest)

    def add_checkpoint(self, artifacts_path: str, manifest_digest: str) -> None:
        with self._noting_losses(artifacts_path):
            directory = storage.directory(artifacts_path)
            bucket = remote.bucket()
            if bucket is not None and not directory.exists():
                self.files |= self._add_from(bucket, artifacts_path, manifest_digest)
                self.checkpoints[artifacts_path] = manifest_digest
                return
            found = {manifest_digest: self._add(directory / MANIFEST, manifest_digest)}
            for each in read_manifest(directory, manifest_digest).artifacts:
                path = directory / each.name
                found[each.blake3] = self._add(path, each.blake3, each.size_bytes)
            self.files |= found
            self.checkpoints[artifacts_path] = manifest_digest

    def _add_from(
        self, bucket: remote.Remote, artifacts_path: str, manifest_digest: str
    ) -> dict[str, int]:
        """Store what no earlier backup has; one file at a time is on this disk."""
        with new_draft(storage.directory(artifacts_path)) as draft:
            fetch = Fetch(bucket.objects, artifacts_path, draft, remote.BACKGROUND, Event())
            artifacts = fetch.manifest(manifest_digest).artifacts
            found = {manifest_digest: self._add(draft / MANIFEST, manifest_digest)}
            for each in artifacts:
                size_bytes = self.stored.size(each.blake3, each.size_bytes)
                if size_bytes is None:
                    fetch.file(each)
                    size_bytes = self._add(draft / each.name, each.blake3, each.size_bytes)
                    (draft / each.name).unlink()
                found[each.blake3] = size_bytes
        return found

    def add_dataset(self, digest: str) -> None:
        with self._noting_losses(_dataset(digest)):
            size_bytes = self.stored.size(digest)
            if size_bytes is None:
                size_bytes = self._add(datasets.local_copy(digest), digest)
            self.files[digest] = size_bytes
            self.datasets.append(digest)

    def _add(self, path: Path, digest: str, size_bytes: int | None = None) -> int:
        """Store a file, unless it is there; return its size."""
        if (found := self.stored.size(digest, size_bytes)) is not None:
            return found
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            copied = self.stored.add(file, digest)
        self.copied_bytes += copied
        return copied

    @contextmanager
    def _noting_losses(self, what: str) -> Iterator[None]:
        try:
            yield
        except (CheckpointCorrupted, datasets.Damaged) as error:
            self.losses.append(Loss(what, str(error)))
        except FileNotFoundError as error:
            self.losses.append(Loss(what, f"{Path(error.filename).name} is missing"))
        except Altered:
            self.losses.append(Loss(what, "was altered"))


def make(store: BackupStore, *, keep: int | None = None) -> Made:
    """Write a backup; then delete all but the newest `keep`, where that is given.

    Raises:
        Busy: another process is at it.
        ForeignPlace: the place has files of other programs, and no backup yet.
        DatabaseProblem: the database cannot be copied.
        OSError: a storage is away or belongs to another installation, or the disk is full.
    """
    for each in (checkpoints.here(), datasets.PLACE):
        storages.require(each)
    snapshots.require_own(store)
    with store.lock() as require_lock:
        snapshots.remove_incomplete(store)
        store.mark()
        name = _new_name(store)
        try:
            made = _written(store, name, require_lock)
        except BaseException:
            snapshots.remove(store, name)
            raise
        _remember(store, keep)
        if keep is not None:
            try:
                thin(store, keep, name)
            except (BackupProblem, OSError) as problem:  # the backup is complete without that
                made = replace(made, not_thinned=str(problem))
    return made


def _remember(store: BackupStore, keep: int | None) -> None:
    """Record the place for erasures; the backup is complete without that."""
    try:
        with transaction.atomic():
            BackupPlace.objects.update_or_create(
                pk=store.address, defaults={"keep": keep, "last_made_at": timezone.now()}
            )
    except DatabaseError as error:  # not migrated yet, or the place is too long
        logger.warning("erase will not list the backups in %s by itself: %s", store.address, error)


def _written(store: BackupStore, name: str, require_lock: Callable[[], None]) -> Made:
    content = _BackupContent(BackupFiles(store))
    with store.draft() as path:
        for _ in range(TRIES):
            content.fill(path)
            if not _has_changed(content.losses):
                break
        with path.open("rb") as file:
            digest = digest_of(file)
            file.seek(0)
            size_bytes = store.write(snapshots.name_of(name, DATABASE), file, digest)
    if not os.environ.get("TRAINOPS_SECRET_KEY"):  # from there, it is kept elsewhere
        further = (each for each in settings.SECRET_KEY_FALLBACKS if "\n" not in each)
        keys = [settings.SECRET_KEY, *further]
        snapshots.save_keys(store, name, keys)
    snapshot = Snapshot(
        trainops=VERSION, made_at=timezone.now().isoformat(timespec="seconds"),
        engine=database.engine(), database=digest, storages=content.storages,
        checkpoints=content.checkpoints, datasets=content.datasets,
        files=content.files, losses=content.losses,
    )  # fmt: skip
    require_lock()
    snapshots.write(store, name, snapshot)
    return Made(name, snapshot, content.copied_bytes + size_bytes)


def thin(store: BackupStore, keep: int, made: str) -> None:
    """Delete all backups but `made` and the newest others, and the files that no other one has.

    Raises NotABackup where one that is kept cannot be read, before anything is deleted.
    """
    names = [made, *(name for name in snapshots.newest_first(store) if name != made)]
    kept = {digest for name in names[:keep] for digest in snapshots.read(store, name).files}
    for name in names[keep:]:
        snapshots.remove(store, name)
    BackupFiles(store).remove_all_but(kept)


def _dataset(digest: str) -> str:
    return f"dataset {digest}"


def _has_changed(losses: list[Loss]) -> bool:
    """Whether the row of something that was not found has been deleted meanwhile."""
    paths = {each.what for each in losses}
    rows = Checkpoint.objects.filter(artifacts_path__in=paths)
    known = set(rows.values_list("artifacts_path", flat=True))
    known.update(map(_dataset, Dataset.objects.values_list("digest", flat=True)))
    return not paths <= known


def _new_name(store: BackupStore) -> str:
    """Return a name after that of the newest backup, also if the clock was ahead then."""
    now = timezone.now().astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    newest = next(iter(snapshots.newest_first(store)), "")
    moment, number = snapshots.age(newest)
    if now > moment:
        return now
    if moment > now:
        logger.warning(
            "The newest backup in %s, %s, is in the future: the clock is wrong now, or was then.",
            store.location, newest,
        )  # fmt: skip
    return f"{moment}-{max(number, 1) + 1}"
