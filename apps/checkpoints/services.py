"""Commit, choose, keep and delete checkpoints. The row is the commit point; files follow it."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db import transaction
from django.db.models import Max, Q, QuerySet, Sum

from apps.checkpoints import remote, sharing, storage
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.storage import Stored
from trainops.clock import DatabaseNow
from trainops.engines.errors import CheckpointCorrupted
from trainops.engines.manifest import verify

WILL_AGES = 24  # how many times as long a will is kept as other files that no row owns


@dataclass(frozen=True, slots=True)
class Freed:
    num_checkpoints: int = 0
    num_unowned: int = 0
    freed_bytes: int = 0

    def __add__(self, other: "Freed") -> "Freed":
        return Freed(
            self.num_checkpoints + other.num_checkpoints,
            self.num_unowned + other.num_unowned,
            self.freed_bytes + other.freed_bytes,
        )


def commit(*, operation_id: str, attempt: int, staged: Mapping[str, Any]) -> Checkpoint:
    """Insert the row of a staged checkpoint. Call inside the transaction that checks the fence.

    `staged` is what the child reported of it (trainops.engines.child). Where the same was
    committed already (the answer to a COMMIT can be lost), nothing more happens.

    Raises:
        CheckpointCorrupted: what it refers to in the bucket was deleted meanwhile.
    """
    artifacts = staged["artifacts"]
    checkpoint = Checkpoint(
        id=f"{operation_id.removeprefix('op_')}-{staged['directory']}",
        operation_id=operation_id,
        attempt=attempt,
        type=staged["type"],
        step=staged["step"],
        state=staged["state"],
        artifacts_path=f"{operation_id}/{staged['directory']}",
        manifest=artifacts,
        manifest_digest=staged["digest"],
        state_size_bytes=sum(a["size_bytes"] for a in artifacts if a["name"] == "state.json"),
        artifacts_size_bytes=sum(a["size_bytes"] for a in artifacts),
        metric=staged["metric"],
    )
    known = Checkpoint.objects.filter(pk=checkpoint.pk, manifest_digest=staged["digest"]).first()
    if known is not None:
        return known
    if remote.bucket() is not None:
        sharing.require_homes(operation_id, staged["directory"], artifacts)
    checkpoint.save(force_insert=True)
    sharing.recount(operation_id)
    _elect_best(operation_id)
    checkpoint.refresh_from_db(fields=["is_best", "counted_size_bytes"])
    return checkpoint


def _elect_best(operation_id: str) -> None:
    """Mark the best healthy one by the operation's metric, and no other; the first of equals."""
    mine = Checkpoint.objects.filter(operation_id=operation_id)
    any_one = mine.select_related("operation").first()
    if any_one is None:
        return
    order = "-metric" if any_one.operation.config.get("mode") == "max" else "metric"
    best = mine.healthy().exclude(metric=None).order_by(order, "step").first()
    mine.filter(is_best=True).exclude(pk=best and best.pk).update(is_best=False)
    if best is not None:
        mine.filter(pk=best.pk, is_best=False).update(is_best=True)


def retain(operation_id: str, *, keep_last: int, keep_best: int, better: str) -> Freed:
    """Delete what the operation's policy lets go: never the newest, the best or a pinned one.

    It is decided where nothing can be committed any more: a ghost that wakes up between deciding
    and deleting would take what is newer than all that it knew.
    """
    with transaction.atomic():
        sharing.lock([operation_id])
        going = expired(operation_id, keep_last=keep_last, keep_best=keep_best, better=better)
        return delete(going)


def expired(
    operation_id: str, *, keep_last: int, keep_best: int, better: str
) -> QuerySet[Checkpoint]:
    """Return what the operation's policy lets go."""
    healthy = Checkpoint.objects.filter(operation_id=operation_id).healthy()
    # A failure checkpoint never displaces the last good one, so it does not use up a place.
    newest = healthy.exclude(type=Checkpoint.Type.FAILURE).newest_first()[:keep_last]
    order = "metric" if better == "min" else "-metric"
    best = healthy.exclude(metric=None).order_by(order, "step")[:keep_best]
    kept = {*newest.values_list("pk", flat=True), *best.values_list("pk", flat=True)}
    newest_failure = healthy.filter(type=Checkpoint.Type.FAILURE).newest_first()[:1]
    kept |= set(newest_failure.values_list("pk", flat=True))
    kept |= sharing.given_out(operation_id)
    return Checkpoint.objects.filter(operation_id=operation_id, pinned=False).exclude(pk__in=kept)


def keep_only_the_result(operation_id: str) -> Freed:
    """After success: the final checkpoint is the result; the ones to resume from may go.

    So may the same result of an attempt before, that ended without being able to say so.
    """
    mine = Checkpoint.objects.filter(operation_id=operation_id)
    result = mine.filter(type=Checkpoint.Type.FINAL).newest_first().first()
    return delete(mine.filter(pinned=False).exclude(pk=result and result.pk))


def delete(checkpoints: QuerySet[Checkpoint]) -> Freed:
    """Delete rows, then their files: a row never points to bytes that are gone.

    A file that another checkpoint has stays.
    """
    with transaction.atomic():
        sharing.lock(checkpoints.values_list("operation_id", flat=True))
        rows = list(checkpoints.values_list("pk", "operation_id", "artifacts_path"))
        going = Checkpoint.objects.filter(pk__in=[row[0] for row in rows])
        files = sharing.files_of_no_other(going)
        going.delete()
        for operation_id in {row[1] for row in rows}:
            sharing.recount(operation_id)
            _elect_best(operation_id)
        paths = [row[2] for row in rows]
        transaction.on_commit(lambda: remove_files(paths, files))
    return Freed(num_checkpoints=len(rows), freed_bytes=sum(files.values()))


def remove_files(artifacts_paths: Iterable[str], names: Iterable[str]) -> None:
    """Remove checkpoints' directories here, and soon their manifests and these in the bucket."""
    paths = list(artifacts_paths)
    for path in paths:
        storage.remove(path)
    if (bucket := remote.bucket()) is not None:
        bucket.remove_later([*names, *map(storage.manifest_location, paths)])


def to_resume_from(operation_id: str, checkpoint_id: str = "") -> list[Checkpoint]:
    """Return the healthy checkpoints to try, in this order: the chosen one, or the newest first."""
    healthy = Checkpoint.objects.filter(operation_id=operation_id).healthy().newest_first()
    if checkpoint_id:
        chosen = healthy.filter(pk=checkpoint_id).first()
        return [chosen] if chosen else []
    return list(healthy)


def check(checkpoint: Checkpoint) -> CheckpointCorrupted | None:
    """Compare the bytes with the manifest; what is wrong marks the row, and is returned.

    In a bucket, it is the bucket's bytes that are read, whatever copies there are.
    """
    path, digest = checkpoint.artifacts_path, checkpoint.manifest_digest
    if (bucket := remote.bucket()) is not None:
        return _marked(checkpoint, partial(bucket.verify, path, digest))
    return _marked(checkpoint, partial(verify, storage.directory(path), digest))


def glance(checkpoint: Checkpoint) -> CheckpointCorrupted | None:
    """Do what `check` does, but of a bucket ask only for the names and sizes: somebody waits."""
    if (bucket := remote.bucket()) is None:
        return check(checkpoint)
    files = sharing.artifacts(checkpoint.manifest)
    return _marked(checkpoint, partial(bucket.look, checkpoint.artifacts_path, files))


def _marked(checkpoint: Checkpoint, look: Callable[[], object]) -> CheckpointCorrupted | None:
    try:
        look()
    except CheckpointCorrupted as problem:
        mark_corrupted(checkpoint.artifacts_path, str(problem))
        return problem
    return None


def mark_corrupted(artifacts_path: str, problem: str) -> None:
    Checkpoint.objects.filter(artifacts_path=artifacts_path).update(
        health=Checkpoint.Health.CORRUPTED, problem=problem
    )
    _elect_best(artifacts_path.partition("/")[0])


def pin(checkpoint_id: str, *, pinned: bool) -> bool:
    return bool(Checkpoint.objects.filter(pk=checkpoint_id).update(pinned=pinned))


def clean_up(*, older_than_days: float | None = None, dry_run: bool = False) -> Freed:
    """Delete old checkpoints of operations that are not active, and files that no row owns.

    A dry run changes nothing and returns what would go.
    """
    days = (
        settings.THRESHOLDS.checkpoint_max_age_days if older_than_days is None else older_than_days
    )
    old = Checkpoint.objects.filter(
        created_at__lt=DatabaseNow() - timedelta(days=days),
        pinned=False,
        operation__state__in=["COMPLETED", "FAILED", "CANCELLED"],
    ).exclude(type=Checkpoint.Type.FINAL)
    removed = _would_free(old) if dry_run else delete(old)
    return removed + sweep_unowned(dry_run=dry_run)


def _would_free(checkpoints: QuerySet[Checkpoint]) -> Freed:
    return Freed(num_checkpoints=checkpoints.count(), freed_bytes=sharing.freed_bytes(checkpoints))


def sweep_unowned(*, dry_run: bool = False) -> Freed:
    """Remove directories that no row owns, no attempt may be writing, and that are old enough.

    Those in the bucket, too, with what uploads that were cut left there.

    Raises:
        StorageFailed: the bucket does not answer; what is on this machine is swept all the same.
    """
    freed = sweep_here(dry_run=dry_run)
    if (bucket := remote.bucket()) is None:
        return freed
    unowned = Unowned()
    for each in filter(unowned.holds, bucket.stored(besides=unowned.shared())):
        freed += Freed(num_unowned=1, freed_bytes=each.size_bytes)
        if not dry_run:
            bucket.remove(each.names)
    for each, forget in bucket.unfinished():
        if not dry_run and unowned.is_old(each):
            forget()
    return freed


def sweep_here(*, dry_run: bool = False) -> Freed:
    """Do on this machine's disk what `sweep_unowned` says."""
    freed, unowned = Freed(), Unowned()
    for each in filter(unowned.holds, storage.stored()):
        freed += Freed(num_unowned=1, freed_bytes=each.size_bytes)
        if not dry_run:
            storage.remove(each.artifacts_path)
    return freed


class Unowned:
    """What nobody owns and nobody may be writing, judged by the rows at the time this was made.

    Age alone proves nothing: a clock may have jumped, a save may be slow. What an attempt left
    for the next owner (`storage.WILL`) is given much longer.
    """

    def __init__(self) -> None:
        # Before the rows, and both before the files: what is committed meanwhile is owned by then.
        self.at_work = _attempts_at_work()
        self.owned = set(Checkpoint.objects.values_list("artifacts_path", flat=True))

    def holds(self, stored: Stored) -> bool:
        return stored.artifacts_path not in self.owned and self.is_old(stored)

    def shared(self) -> set[str]:
        """Return the objects that some checkpoint has, whatever directory they are in."""
        return set(sharing.files(Checkpoint.objects.all()))

    def is_old(self, stored: Stored) -> bool:
        if stored.attempt >= self.at_work.get(stored.operation_id, math.inf):
            return False
        age = settings.THRESHOLDS.unowned_file_age_seconds
        return stored.changed_at <= time.time() - (WILL_AGES * age if stored.is_will else age)


def _attempts_at_work() -> dict[str, int]:
    """Return of every operation that is not finished the oldest attempt whose files are not old.

    It is the one that began to compute last: until a later one has begun, too, what was left by it
    may be adopted.
    """
    operations = apps.get_model("operations", "Operation").objects
    begun = Max("attempts__number", filter=Q(attempts__receipt__isnull=False), default=0)
    return dict(operations.active().values_list("pk").annotate(begun=begun))


def total_bytes(checkpoints: QuerySet[Checkpoint]) -> int:
    """Return what the checkpoints take; a file that several have counts once."""
    return checkpoints.aggregate(total=Sum("counted_size_bytes"))["total"] or 0
