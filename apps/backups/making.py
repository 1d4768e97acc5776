"""Make a backup while everything runs.

The rows come first and their files after them, so that a file may be deleted in between. What a
clean-up or a newer checkpoint took away is no longer wanted by any row: then the database is
copied once more, which finds nearly every file stored already.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC
from itertools import count
from pathlib import Path
from secrets import token_hex
from threading import Event

from django.conf import settings
from django.utils import timezone

from apps.backups import database, snapshots
from apps.backups.errors import Busy
from apps.backups.files import DRAFT, Altered, BackupFiles, digest_of
from apps.backups.snapshots import DATABASE, Loss, Snapshot
from apps.checkpoints import copies, storage
from apps.checkpoints import place as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.datasets import storage as datasets
from apps.datasets.models import Dataset
from apps.installation import storages
from apps.installation.models import StorageBinding
from trainops.runtime.checkpoint.manifest import MANIFEST, read_manifest
from trainops.runtime.errors import CheckpointCorrupted
from trainops.version import VERSION

TRIES = 5  # copies of the database, while files of its rows disappear


@dataclass(frozen=True, slots=True)
class Made:
    name: str
    snapshot: Snapshot
    copied_bytes: int  # not stored by an earlier backup


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
            if settings.CHECKPOINT_BUCKET is not None and not directory.exists():
                copies.make_local(artifacts_path, manifest_digest, Event())
            found = {manifest_digest: self._add(directory / MANIFEST, manifest_digest)}
            for each in read_manifest(directory, manifest_digest).artifacts:
                path = directory / each.name
                found[each.blake3] = self._add(path, each.blake3, each.size_bytes)
            self.files |= found
            self.checkpoints[artifacts_path] = manifest_digest

    def add_dataset(self, digest: str) -> None:
        with self._noting_losses(_dataset(digest)):
            is_stored = self.stored.has(digest)
            path = self.stored.path(digest) if is_stored else datasets.local_copy(digest)
            self.files[digest] = self._add(path, digest)
            self.datasets.append(digest)

    def _add(self, path: Path, digest: str, size_bytes: int | None = None) -> int:
        """Store a file, unless it is there; return its size."""
        if self.stored.has(digest, size_bytes):
            return self.stored.path(digest).stat().st_size
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


def make(root: Path, *, keep: int | None = None) -> Made:
    """Write a backup below `root`; then delete all but the newest `keep`, where that is given.

    Raises:
        Busy: another process is at it.
        DatabaseProblem: the database cannot be copied.
        OSError: a storage is away or belongs to another installation, or the disk is full.
    """
    for each in (checkpoints.here(), datasets.PLACE):
        storages.require(each)
    root.mkdir(parents=True, exist_ok=True)
    root.chmod(0o700)
    with _lock(root), _draft(root) as draft:
        content = _BackupContent(BackupFiles(root / "files"))
        for _ in range(TRIES):
            content.fill(draft / DATABASE)
            if not _has_changed(content.losses):
                break
        if not os.environ.get("TRAINOPS_SECRET_KEY"):  # from there, it is kept elsewhere
            snapshots.save_key(draft, settings.SECRET_KEY)
        with (draft / DATABASE).open("rb") as file:
            digest, size_bytes = digest_of(file), os.fstat(file.fileno()).st_size
        snapshot = Snapshot(
            trainops=VERSION, made_at=timezone.now().isoformat(timespec="seconds"),
            engine=database.engine(), database=digest, storages=content.storages,
            checkpoints=content.checkpoints, datasets=content.datasets,
            files=content.files, losses=content.losses,
        )  # fmt: skip
        snapshots.write(draft, snapshot)
        name = _publish(draft)
        if keep is not None:
            thin(root, keep)
    return Made(name, snapshot, content.copied_bytes + size_bytes)


def thin(root: Path, keep: int) -> None:
    """Delete all backups but the newest `keep`, and the files that no other backup has."""
    kept: set[str] = set()
    for number, path in enumerate(snapshots.newest_first(root)):
        if number < keep:
            kept |= snapshots.read(path).files.keys()
        else:
            (path / snapshots.INDEX).unlink()  # without it the rest does not count
            shutil.rmtree(path)
    BackupFiles(root / "files").remove_all_but(kept)


def _dataset(digest: str) -> str:
    return f"dataset {digest}"


def _has_changed(losses: list[Loss]) -> bool:
    """Whether the row of something that was not found has been deleted meanwhile."""
    paths = {each.what for each in losses}
    rows = Checkpoint.objects.filter(artifacts_path__in=paths)
    known = set(rows.values_list("artifacts_path", flat=True))
    known.update(map(_dataset, Dataset.objects.values_list("digest", flat=True)))
    return not paths <= known


def _publish(draft: Path) -> str:
    moment = timezone.now().astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    for number in count(1):
        name = moment if number == 1 else f"{moment}-{number}"
        if not draft.with_name(name).exists():
            draft.rename(draft.with_name(name))
            return name
    raise AssertionError("unreachable")


@contextmanager
def _lock(root: Path) -> Iterator[None]:
    with (root / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"Another backup is being written into {root}.") from None
        yield


@contextmanager
def _draft(root: Path) -> Iterator[Path]:
    """Yield a new directory beside the finished backups; remove it unless it was renamed."""
    home = root / "snapshots"
    for left in home.glob(f"{DRAFT}*"):  # of a process that was killed: we hold the lock
        shutil.rmtree(left)
    draft = home / f"{DRAFT}{token_hex(8)}"
    draft.mkdir(mode=0o700, parents=True)
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)
