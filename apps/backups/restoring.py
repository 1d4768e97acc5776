"""Bring a backup back, into an installation that is still empty.

The files come first and the database last: until then the installation is empty, and a restore
that was interrupted is begun again.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from apps.backups import database, snapshots
from apps.backups.errors import NotABackup
from apps.backups.files import BackupFiles
from apps.backups.snapshots import DATABASE, MANY, Snapshot
from apps.backups.store import BackupStore
from apps.checkpoints import place as checkpoints
from apps.checkpoints import remote, storage
from apps.datasets import storage as datasets
from trainops.encrypted_files import Altered
from trainops.runtime.checkpoint.durable import sync_directory
from trainops.runtime.checkpoint.manifest import MANIFEST, read_manifest


def restore(store: BackupStore, name: str) -> Snapshot:
    """Fill this installation with a backup.

    Raises:
        NotABackup: one of its files is missing or altered, or a storage has another owner.
        DatabaseProblem: the database is not empty or of another engine.
        OSError: the disk is full, or a storage does not answer.
    """
    snapshot = snapshots.read(store, name)
    database.require_empty()
    _require_own_storages(snapshot)
    _require_intact(store, name)
    files = BackupFiles(store)
    for place in (checkpoints.here(), datasets.PLACE):
        if storage_id := snapshot.storages.get(place.name):
            place.write_id(storage_id)
    for artifacts_path, manifest_digest in sorted(snapshot.checkpoints.items()):
        _restore_checkpoint(files, artifacts_path, manifest_digest)
    for digest in snapshot.datasets:
        with _naming(digest), files.local(digest) as path:
            datasets.put(path, digest)
    copy = store.local(snapshots.name_of(name, DATABASE), snapshot.database)
    with _naming("database"), copy as path:
        database.restore(path, snapshot.engine)
    return snapshot


def _require_intact(store: BackupStore, name: str) -> None:
    """Raise NotABackup for a damaged backup before anything is written.

    The files of a bucket are not downloaded twice: each is compared with its digest as it is
    restored, before the database.
    """
    look = snapshots.visible_problems if store.place.is_remote else snapshots.problems
    if found := list(look(store, name)):
        more = f" and {len(found) - MANY} more" if len(found) > MANY else ""
        named = "; ".join(found[:MANY])
        raise NotABackup(f"The backup {name} is damaged: {named}{more}.")


def _require_own_storages(snapshot: Snapshot) -> None:
    """Raise NotABackup where a storage has files of another installation."""
    for place in (checkpoints.here(), datasets.PLACE):
        found = place.read_id()
        if found not in (None, snapshot.storages.get(place.name)):
            raise NotABackup(
                f"The storage of {place.name}, {place.location}, belongs to another installation "
                f"than the backup. Restore into a new directory or an empty bucket."
            )


def _restore_checkpoint(files: BackupFiles, artifacts_path: str, manifest_digest: str) -> None:
    directory = storage.directory(artifacts_path)
    directory.mkdir(parents=True, exist_ok=True)
    _put(files, manifest_digest, directory / MANIFEST)
    artifacts = read_manifest(directory, manifest_digest).artifacts
    for each in artifacts:
        target = directory / each.name
        earlier = directory.parent / each.home / each.name
        if each.home and earlier.exists():  # one file in two directories, as it was
            target.unlink(missing_ok=True)
            os.link(earlier, target)
        else:
            _put(files, each.blake3, target)
    sync_directory(directory)
    if (bucket := remote.bucket()) is not None:
        names = {each.name: storage.location(artifacts_path, each) for each in artifacts}
        names[MANIFEST] = storage.manifest_location(artifacts_path)
        for name, location in names.items():
            bucket.objects.put(directory / name, location, Event())


def _put(files: BackupFiles, digest: str, target: Path) -> None:
    with _naming(digest):
        files.put_into(digest, target)


@contextmanager
def _naming(what: str) -> Iterator[None]:
    try:
        yield
    except Altered:
        raise NotABackup(f"The file {what} of the backup was altered.") from None
