"""Recovery records: staged checkpoints whose commit failed, for the operation's next attempt.

A supervisor that gives up writes beside the staged files what was to be committed with them: the
row, and the metric points and media that a resume from there would never measure again. The next
attempt verifies the bytes and commits all of it under its own fence, so nothing is computed twice.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from apps.checkpoints import services as checkpoints
from apps.checkpoints import signatures, storage
from apps.checkpoints.models import Checkpoint
from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.files.uploads import upload
from apps.operations.models import Media, Operation
from apps.operations.points.new_points import NewPoint
from trainops.process.protocol import MediaLogged
from trainops.runtime import lossless
from trainops.runtime.checkpoint import durable, staged_json
from trainops.runtime.checkpoint.manifest import StagedCheckpoint, staged, verify
from trainops.runtime.errors import CheckpointCorrupted

logger = logging.getLogger(__name__)


class RecoveryRecord(TypedDict):
    """A staged checkpoint, encoded by `lossless`; its points, see `_point`, and its media."""

    staged: object
    points: list[list[Any]]
    media: NotRequired[list[dict[str, Any]]]  # fields of MediaLogged


def leave_behind(writer: ReportWriter, checkpoint: StagedCheckpoint) -> None:
    """Write a recovery record beside the staged files."""
    directory = storage.operation_directory(writer.operation.pk) / checkpoint.directory
    points = [
        [each.name, each.step, each.value, each.not_finite, each.at.timestamp()]
        for each in writer.points
    ]
    media = [asdict(MediaLogged.of(each.item(), each.at.timestamp())) for each in writer.media]
    content = lossless.dumps(
        {
            "staged": lossless.encode(staged_json.to_json(checkpoint)),
            "points": points,
            "media": media,
        }
    )
    durable.write_whole(directory / storage.RECOVERY_RECORD, content.encode())
    logger.warning("%s: step %s is left for the next attempt", writer.operation.pk, checkpoint.step)


def store(operation: Operation, oldest: int, stop: threading.Event) -> None:
    """Upload the staged files of this machine's records; `recover` commits them.

    Asks nothing of the database. Raises StorageFailed.
    """
    for directory, record in _records(operation, oldest):
        with suppress(CheckpointCorrupted):  # not recovered: `recover` logs it
            verify(directory, _staged(record).digest)
            upload(f"{operation.pk}/{directory.name}", stop)


def recover(writer: ReportWriter, oldest: int) -> Checkpoint | None:
    """Commit the staged checkpoint of a record, if it is intact and newer than what is committed.

    `oldest` is the attempt that began last: one before it may have gone another way, one after it
    has not computed a step that is known.

    Raises:
        Fenced: this attempt no longer owns the operation.
    """
    for directory, record in _records(writer.operation, oldest):
        if not _is_newer(writer.operation, _staged(record).step):
            continue
        measured_by = storage.attempt_of(directory.name)
        points = [_point(measured_by, values) for values in record["points"]]
        media = [_media(writer.operation, measured_by, each) for each in record.get("media", [])]
        try:
            found = _verified(directory, record)
            path = f"{writer.operation.pk}/{directory.name}"
            signature = signatures.require_stored(path, found.digest, is_asked=False)
            with _with_points(writer, points, media):
                checkpoint = writer.commit(found, signature=signature.text)
        except CheckpointCorrupted as error:
            logger.warning("%s: not recovered: %s", writer.operation.pk, error)
            continue
        writer.operation.record(
            "ADOPTED",
            actor=writer.operation.worker_id,
            note=f"the {checkpoint}, which the attempt before could not commit",
        )
        return checkpoint
    return None


def _verified(directory: Path, record: RecoveryRecord) -> StagedCheckpoint:
    """Return what lies in the directory, by its manifest: the record itself is not signed.

    Raises CheckpointCorrupted, also where the record is of another checkpoint.
    """
    recorded = _staged(record)
    found = staged(verify(directory, recorded.digest))
    if (recorded.directory, recorded.step) != (directory.name, found.step):
        reason = f"it names {recorded.directory}, step {recorded.step}"
        raise CheckpointCorrupted(directory, altered=[storage.RECOVERY_RECORD], reason=reason)
    return found


@contextmanager
def _with_points(
    writer: ReportWriter, points: list[NewPoint], media: list[Media]
) -> Iterator[None]:
    """Replace the writer's points and media during one commit, and restore its own afterwards.

    Those of an earlier attempt must not reach a later flush: they may be measured again by then.
    """
    own, writer.points = writer.points, points
    own_media, writer.media = writer.media, media
    try:
        yield
    finally:
        writer.points, writer.media = own, own_media


def _records(operation: Operation, oldest: int) -> Iterator[tuple[Path, RecoveryRecord]]:
    """Yield what attempts left, the newest first, from the one that began last to this one."""
    mine = storage.operation_directory(operation.pk).glob(f"a*/{storage.RECOVERY_RECORD}")
    for path in sorted(mine, reverse=True):
        if oldest <= storage.attempt_of(path.parent.name) < operation.attempt:
            yield path.parent, lossless.loads(path.read_bytes())


def _staged(record: RecoveryRecord) -> StagedCheckpoint:
    return staged_json.from_json(lossless.decode(record["staged"]))


def _is_newer(operation: Operation, step: int) -> bool:
    newest = checkpoints.to_resume_from(operation.pk)
    return not newest or step > newest[0].step


def _point(attempt: int, values: list[Any]) -> NewPoint:
    name, step, value, not_finite, at = values
    number = None if value is None else float(value)
    return NewPoint(attempt, name, step, number, not_finite, datetime.fromtimestamp(at, UTC))


def _media(operation: Operation, attempt: int, values: dict[str, Any]) -> Media:
    message = MediaLogged(**values)
    return Media.of(message.item(), operation.pk, attempt, message.at)
