"""Commit, choose, keep and delete checkpoints. The row is the commit point; files follow it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet, Sum
from django.db.models.fields.json import KeyTransform

from apps.checkpoints import remote, sharing, signatures, signing_keys, storage
from apps.checkpoints.models import Checkpoint, UnownedCheckpoint
from apps.checkpoints.owners import owners
from trainops.kind import KINDS
from trainops.runtime import monitors
from trainops.runtime.checkpoint.manifest import STATE, VERSION, StagedCheckpoint

Monitored = tuple[str, int, Any]  # id, step, and what the state says of further metrics
Ranked = tuple[float, int, str]  # value, less is better; step; id, empty: not committed yet


@dataclass(frozen=True, slots=True)
class Freed:
    """What was deleted; `num_trashed` directories without a row are deleted in some days."""

    num_checkpoints: int = 0
    num_unowned: int = 0
    freed_bytes: int = 0
    num_trashed: int = 0

    def __str__(self) -> str:
        plural = "" if self.num_checkpoints == 1 else "s"
        return f"{self.num_checkpoints} checkpoint{plural}, {self.freed_bytes} bytes"

    def __add__(self, other: "Freed") -> "Freed":
        return Freed(
            self.num_checkpoints + other.num_checkpoints,
            self.num_unowned + other.num_unowned,
            self.freed_bytes + other.freed_bytes,
            self.num_trashed + other.num_trashed,
        )


def commit(
    *, operation_id: str, attempt: int, staged: StagedCheckpoint, signature: str | None = None
) -> Checkpoint:
    """Insert the row of a staged checkpoint. Call inside the transaction that checks the fence.

    `signature`: of one that is recovered, as it was found; None: it is signed now.

    A checkpoint that is committed already stays as it is: the answer to a COMMIT can be lost.

    Raises:
        CheckpointCorrupted: what it refers to in the bucket was deleted meanwhile.
        KeyNotEnrolled: signatures are required, and this process cannot sign.
    """
    artifacts = staged.artifacts
    artifacts_path = f"{operation_id}/{staged.directory}"
    checkpoint = Checkpoint(
        id=f"{operation_id.removeprefix('op_')}-{staged.directory}",
        operation_id=operation_id,
        attempt=attempt,
        type=staged.type,
        step=staged.step,
        state=staged.state,
        artifacts_path=artifacts_path,
        signature=signatures.sign(artifacts_path, staged.digest)
        if signature is None
        else signature,
        format_version=VERSION,
        manifest=[asdict(each) for each in artifacts],
        manifest_digest=staged.digest,
        state_size_bytes=sum(a.size_bytes for a in artifacts if a.name == STATE),
        artifacts_size_bytes=sum(each.size_bytes for each in artifacts),
        metric=staged.metric,
    )
    known = Checkpoint.objects.filter(pk=checkpoint.pk, manifest_digest=staged.digest).first()
    if known is not None:
        return known
    if settings.REQUIRE_SIGNATURES and not checkpoint.signature:
        raise signing_keys.KeyNotEnrolled
    if remote.bucket() is not None:
        sharing.require_homes(operation_id, staged.directory, artifacts)
    checkpoint.save(force_insert=True)
    sharing.recount(operation_id)
    elect_best(operation_id)
    checkpoint.refresh_from_db(fields=["is_best", "best_of", "counted_size_bytes"])
    return checkpoint


def newer_format(operation_id: str) -> int | None:
    """Return the newest format of its checkpoints, if a newer version than this one wrote it."""
    newer = Checkpoint.objects.filter(operation_id=operation_id, format_version__gt=VERSION)
    return newer.order_by("-format_version").values_list("format_version", flat=True).first()


def elect_best(operation_id: str) -> None:
    """Mark the best healthy one by the operation's metric, and no other; the first of equals.

    None is where a better value was measured than any that is left has: the best model is then a
    file of the others. None is where the kind measures no model.
    """
    mine = Checkpoint.objects.filter(operation_id=operation_id)
    newest = mine.select_related("operation").newest_first().first()
    if newest is None:
        return
    sign = -1 if newest.operation.config.get("mode") == "max" else 1
    order = "metric" if sign > 0 else "-metric"
    kind = KINDS[newest.operation.kind]
    best = mine.healthy().exclude(metric=None).order_by(order, "step").first()
    if not kind.measures_best:
        best = None
    ever = kind.best_ever(newest.state)
    if best is not None and ever is not None and sign * (best.metric or 0.0) > sign * ever:
        best = None
    mine.filter(is_best=True).exclude(pk=best and best.pk).update(is_best=False)
    if best is not None:
        mine.filter(pk=best.pk, is_best=False).update(is_best=True)
    if modes := monitors.further(newest.operation.config):
        _elect_further(mine, _monitored(mine.healthy()), newest.state, modes)


def _elect_further(
    mine: QuerySet[Checkpoint],
    states: Sequence[Monitored],
    newest: Mapping[str, object],
    modes: Mapping[str, str],
) -> None:
    """Mark the best by each further monitored metric, as `elect_best` does by the first."""
    best_of: dict[str, list[str]] = defaultdict(list)
    for metric, mode in modes.items():
        ranked = _ranked(states, metric, mode)
        ever = monitors.best_ever(newest, metric)
        if ranked and (ever is None or ranked[0][0] <= _sign(mode) * ever):
            best_of[ranked[0][2]].append(metric)
    for pk, before in mine.values_list("pk", "best_of"):
        if before != best_of[pk]:
            mine.filter(pk=pk).update(best_of=best_of[pk])


def _sign(mode: str) -> int:
    return 1 if mode == "min" else -1


def _monitored(checkpoints: QuerySet[Checkpoint]) -> list[Monitored]:
    read = KeyTransform(monitors.STATE_KEY, "state")
    return list(checkpoints.values_list("pk", "step", read))


def _ranked(states: Iterable[Monitored], metric: str, mode: str) -> list[Ranked]:
    """Return those that measured a further metric, the best first; the earlier of equals first."""
    values = (
        (monitors.measured({monitors.STATE_KEY: found}, metric), step, pk)
        for pk, step, found in states
    )
    return sorted(
        (_sign(mode) * value, step, pk) for value, step, pk in values if value is not None
    )


def retain(
    operation_id: str,
    *,
    keep_last: int,
    keep_best: int,
    better: str,
    further: Mapping[str, str] | None = None,
) -> Freed:
    """Delete what the operation's policy lets go: never the newest, the best or a pinned one.

    `further`: min or max for each further monitored metric, by which the best ones stay, too.

    It is decided where nothing can be committed any more: a ghost that wakes up between deciding
    and deleting would take what is newer than all that it knew.
    """
    with transaction.atomic():
        owners().lock([operation_id])
        going = expired(
            operation_id,
            keep_last=keep_last,
            keep_best=keep_best,
            better=better,
            further=further,
        )
        return delete(going)


def expired(
    operation_id: str,
    *,
    keep_last: int,
    keep_best: int,
    better: str,
    further: Mapping[str, str] | None = None,
    upcoming: StagedCheckpoint | None = None,
) -> QuerySet[Checkpoint]:
    """Return what the operation's policy lets go, now or once `upcoming` is committed.

    Damaged ones stay for a person to look at, until they are too old or the operation succeeds.
    """
    healthy = Checkpoint.objects.filter(operation_id=operation_id).healthy()
    # A failure checkpoint never displaces the last good one, so it does not use up a place.
    newest = healthy.exclude(type=Checkpoint.Type.FAILURE).newest_first()
    places = keep_last if upcoming is None else max(0, keep_last - 1)
    kept = {*newest.values_list("pk", flat=True)[:places]}
    kept |= _best(healthy, keep_best, better, upcoming)
    kept |= _best_further(healthy, keep_best, further or {}, upcoming)
    newest_failure = healthy.filter(type=Checkpoint.Type.FAILURE).newest_first()[:1]
    kept |= set(newest_failure.values_list("pk", flat=True))
    kept |= owners().needed_by_subtasks(operation_id)
    return healthy.filter(pinned=False).exclude(pk__in=kept)


def _best(
    healthy: QuerySet[Checkpoint], number: int, better: str, upcoming: StagedCheckpoint | None
) -> set[str]:
    """Return the ids of the best ones; the earlier of equals first."""
    sign, order = _sign(better), "metric" if better == "min" else "-metric"
    measured = healthy.exclude(metric=None).order_by(order, "step")[:number]
    ranked = [
        (sign * metric, step, pk)
        for metric, step, pk in measured.values_list("metric", "step", "pk")
        if metric is not None
    ]
    if upcoming is not None and upcoming.metric is not None:
        ranked = sorted([*ranked, (sign * upcoming.metric, upcoming.step, "")])[:number]
    return {pk for *_, pk in ranked}


def _best_further(
    healthy: QuerySet[Checkpoint],
    number: int,
    modes: Mapping[str, str],
    upcoming: StagedCheckpoint | None,
) -> set[str]:
    """Return the ids of the best by each further monitored metric."""
    states = _monitored(healthy) if modes and number else []
    if upcoming is not None:
        states.append(("", upcoming.step, upcoming.state.get(monitors.STATE_KEY)))
    ranked = (_ranked(states, metric, mode)[:number] for metric, mode in modes.items())
    return {pk for each in ranked for *_, pk in each}


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
        owners().lock(checkpoints.values_list("operation_id", flat=True))
        rows = list(checkpoints.values_list("pk", "operation_id", "artifacts_path"))
        going = Checkpoint.objects.filter(pk__in=[row[0] for row in rows])
        files = sharing.files_of_no_other(going)
        going.delete()
        _remember_deleted(row[2] for row in rows)
        for operation_id in {row[1] for row in rows}:
            sharing.recount(operation_id)
            elect_best(operation_id)
        paths = [row[2] for row in rows]
        transaction.on_commit(lambda: remove_files(paths, files))
    return Freed(num_checkpoints=len(rows), freed_bytes=sum(files.values()))


def _remember_deleted(artifacts_paths: Iterable[str]) -> None:
    UnownedCheckpoint.objects.bulk_create(
        [UnownedCheckpoint(artifacts_path=path, is_deleted=True) for path in artifacts_paths],
        update_conflicts=True,
        unique_fields=["artifacts_path"],
        update_fields=["is_deleted"],
    )


def remove_files(artifacts_paths: Iterable[str], names: Iterable[str]) -> None:
    """Remove checkpoints' directories here, and soon their manifests and these in the bucket."""
    paths = list(artifacts_paths)
    for path in paths:
        storage.remove(path)
    if (bucket := remote.bucket()) is not None:
        signed = map(storage.signature_location, paths)
        bucket.remove_later([*names, *map(storage.manifest_location, paths), *signed])


def to_resume_from(operation_id: str, checkpoint_id: str = "") -> list[Checkpoint]:
    """Return the checkpoints to try, in this order: the chosen one, or the newest first.

    Those that were unavailable are tried, too: their files may be there again.
    """
    usable = Checkpoint.objects.filter(operation_id=operation_id).usable().newest_first()
    if checkpoint_id:
        chosen = usable.filter(pk=checkpoint_id).first()
        return [chosen] if chosen else []
    return list(usable)


def pin(checkpoint_id: str, *, pinned: bool) -> bool:
    return bool(Checkpoint.objects.filter(pk=checkpoint_id).update(pinned=pinned))


def total_bytes(checkpoints: QuerySet[Checkpoint]) -> int:
    """Return what the checkpoints take; a file that several have counts once."""
    return checkpoints.aggregate(total=Sum("counted_size_bytes"))["total"] or 0
