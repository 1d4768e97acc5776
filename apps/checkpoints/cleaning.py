"""Delete old checkpoints and files without a database row, in this installation's storage."""

import math
import shutil
import time
from collections.abc import Container, Iterable
from datetime import timedelta

from django.conf import settings
from django.db.models import Q, QuerySet

from apps.checkpoints import place, remote, services, sharing, storage
from apps.checkpoints.models import Checkpoint, UnownedCheckpoint
from apps.checkpoints.owners import owners
from apps.checkpoints.services import Freed
from apps.checkpoints.storage import Stored
from trainops.clock import DatabaseNow

WILL_AGES = 24  # how many times as long a will is kept as other files that no row owns
BATCH = 500  # rows that one statement names


def clean_up(
    *,
    actor: str,
    older_than_days: float | None = None,
    dry_run: bool = False,
    empty_trash: bool = False,
) -> Freed:
    """Delete old checkpoints of operations that are not active, and files that no row owns.

    A complete checkpoint without a row is deleted `trash_days` after it was found first, or now
    with `empty_trash`. A dry run changes nothing and returns what would go.

    Raises OSError where the storage is away, foreign, or does not answer.
    """
    place.require()
    old = expired(older_than_days)
    removed = _would_free(old) if dry_run else _expire(old, actor)
    return removed + sweep_unowned(dry_run=dry_run, empty_trash=empty_trash)


def expired(older_than_days: float | None = None) -> QuerySet[Checkpoint]:
    """Return the checkpoints that a cleanup deletes because of their age."""
    limits = settings.THRESHOLDS
    days = limits.checkpoint_max_age_days if older_than_days is None else older_than_days
    return Checkpoint.objects.filter(
        created_at__lt=DatabaseNow() - timedelta(days=days),
        pinned=False,
        operation__in=owners().finished(),
    ).exclude(type=Checkpoint.Type.FINAL)


def _would_free(checkpoints: QuerySet[Checkpoint]) -> Freed:
    return Freed(num_checkpoints=checkpoints.count(), freed_bytes=sharing.freed_bytes(checkpoints))


def _expire(old: QuerySet[Checkpoint], actor: str) -> Freed:
    """Delete old checkpoints, operation by operation, each with its event."""
    freed = Freed()
    operation_ids = sorted(set(old.values_list("operation_id", flat=True)))
    for operation_id in operation_ids:
        mine = old.filter(operation_id=operation_id)
        first = mine.select_related("operation").first()
        if first is None:
            continue
        gone = services.delete(mine)
        first.operation.record(
            "CHECKPOINTS_EXPIRED",
            actor=actor,
            note=str(gone),
        )
        freed += gone
    return freed


def sweep_unowned(*, dry_run: bool = False, empty_trash: bool = False) -> Freed:
    """Remove what no row owns, no attempt may be writing, and is old enough; whole ones later.

    In the bucket where that is the storage, with what uploads that were cut left there; and then
    copies on this machine's disk, too.

    Raises OSError: nothing in the storage was removed then.
    """
    place.require()
    unowned = Unowned()
    bucket = remote.bucket()
    if bucket is None:
        return _sweep(unowned, storage.stored(), dry_run=dry_run, empty_trash=empty_trash)
    freed = sweep_here(dry_run=dry_run)
    freed += _sweep(
        unowned,
        bucket.stored(besides=unowned.shared()),
        dry_run=dry_run,
        empty_trash=empty_trash,
    )
    for each, forget in bucket.unfinished():
        if not dry_run and unowned.is_old(each):
            forget()
    return freed


def sweep_here(*, dry_run: bool = False) -> Freed:
    """Remove what is staged or copied on this machine's disk beside a bucket, and has no row."""
    freed, unowned = Freed(), Unowned()
    for each in storage.stored():
        if unowned.holds(each) and unowned.is_old(each):
            freed += Freed(num_unowned=1, freed_bytes=each.size_bytes)
            if not dry_run:
                storage.remove(each.artifacts_path)
    return freed


def remove_all_of(operation_id: str) -> None:
    """Remove every file below a deleted operation's directory, whatever it is, without a delay.

    In the bucket and on this disk. Raises OSError where the storage is away.
    """
    place.require()
    if Checkpoint.objects.filter(operation_id=operation_id).exists():
        raise ValueError(f"{operation_id} has checkpoints")
    if (bucket := remote.bucket()) is not None:
        bucket.remove(bucket.names_of(operation_id))
    shutil.rmtree(storage.operation_directory(operation_id), ignore_errors=True)
    UnownedCheckpoint.objects.filter(pk__startswith=f"{operation_id}/").delete()


def has_files(operation_id: str) -> bool:
    """Whether anything is left of an operation. Raises OSError where the storage is away."""
    place.require()
    bucket = remote.bucket()
    is_here = storage.operation_directory(operation_id).exists()
    return is_here or (bucket is not None and bool(bucket.names_of(operation_id)))


def _sweep(
    unowned: "Unowned", everything: Iterable[Stored], *, dry_run: bool, empty_trash: bool
) -> Freed:
    found = {each.artifacts_path: each for each in everything if unowned.holds(each)}
    if not dry_run:
        unowned.forget_all_but(found)  # owned now, or gone
    overdue = _overdue()
    freed = Freed()
    for path, each in found.items():
        if not unowned.is_old(each) or unowned.is_newer(each):
            continue
        if each.is_whole and path not in overdue and not empty_trash:
            freed += Freed(num_trashed=1)
            if not dry_run:
                UnownedCheckpoint.objects.get_or_create(pk=path)
            continue
        freed += Freed(num_unowned=1, freed_bytes=each.size_bytes)
        if not dry_run:
            _remove(each)
    return freed


def _overdue() -> set[str]:
    """Return what was deleted on purpose, or found long enough ago."""
    days = timedelta(days=settings.THRESHOLDS.trash_days)
    is_due = Q(is_deleted=True) | Q(found_at__lt=DatabaseNow() - days)
    return set(UnownedCheckpoint.objects.filter(is_due).values_list("pk", flat=True))


def _remove(stored: Stored) -> None:
    if (bucket := remote.bucket()) is not None:
        bucket.remove(stored.names)
    else:
        storage.remove(stored.artifacts_path)
    UnownedCheckpoint.objects.filter(pk=stored.artifacts_path).delete()


class Unowned:
    """What no row owns and no attempt may be writing, judged by the rows when this was made.

    Age alone proves nothing: a clock may have jumped, a save may be slow. What an attempt left
    for the next owner (`storage.WILL`) is given much longer.
    """

    def __init__(self, operation_id: str = "") -> None:
        """Judge everything, or one operation's only."""
        mine = {"operation_id": operation_id} if operation_id else {}
        # Before the rows, and both before the files: what is committed meanwhile is owned by then.
        self.at_work = owners().attempts_at_work(operation_id)
        self.owned = set(Checkpoint.objects.filter(**mine).values_list("artifacts_path", flat=True))
        self.marks = _marks(operation_id)
        self.newest = _newest_positions(operation_id)

    def holds(self, stored: Stored) -> bool:
        return stored.artifacts_path not in self.owned

    def shared(self) -> set[str]:
        """Return the objects that some checkpoint has, whatever directory they are in."""
        return set(sharing.files(Checkpoint.objects.all()))

    def forget_all_but(self, found: Container[str]) -> None:
        """Delete the rows of other directories; not those that were made or changed meanwhile."""
        for is_deleted, paths in self.marks.items():
            gone = [path for path in paths if path not in found]
            for first in range(0, len(gone), BATCH):
                rows = UnownedCheckpoint.objects.filter(pk__in=gone[first : first + BATCH])
                rows.filter(is_deleted=is_deleted).delete()

    def is_old(self, stored: Stored) -> bool:
        if stored.attempt >= self.at_work.get(stored.operation_id, math.inf):
            return False
        age = settings.THRESHOLDS.unowned_file_age_seconds
        return stored.changed_at <= time.time() - (WILL_AGES * age if stored.is_will else age)

    def is_newer(self, stored: Stored) -> bool:
        """Whether it is a whole checkpoint beyond all that the database knows of its operation.

        A database that was restored from a backup lacks the newest ones; they are offered to be
        recovered, and go when they are as old as any checkpoint may get.
        """
        newest = self.newest.get(stored.operation_id)
        if not stored.is_whole or stored.artifacts_path in self.marks[True]:
            return False
        if newest is None or (stored.attempt, stored.step) <= newest:
            return False
        age = settings.THRESHOLDS.checkpoint_max_age_days * 86_400
        return stored.changed_at > time.time() - age


def _marks(operation_id: str) -> dict[bool, set[str]]:
    """Return the directories known to be unowned: deleted on purpose (True), and found (False)."""
    known = UnownedCheckpoint.objects.all()
    if operation_id:
        known = known.filter(artifacts_path__startswith=f"{operation_id}/")
    marks: dict[bool, set[str]] = {True: set(), False: set()}
    for path, is_deleted in known.values_list("pk", "is_deleted"):
        marks[is_deleted].add(path)
    return marks


def _newest_positions(operation_id: str) -> dict[str, tuple[int, int]]:
    """Return of every operation that has not succeeded the newest (attempt, step) with a row."""
    unfinished = owners().not_succeeded(operation_id)
    newest = dict.fromkeys(unfinished.values_list("pk", flat=True), (-1, -1))
    rows = Checkpoint.objects.filter(operation__in=unfinished).order_by()
    for owner_id, path in rows.values_list("operation_id", "artifacts_path"):
        if not storage.is_artifacts_path(path):
            continue  # it has no files
        name = path.partition("/")[2]
        position = storage.attempt_of(name), storage.step_of(name)
        newest[owner_id] = max(newest.get(owner_id, position), position)
    return newest
