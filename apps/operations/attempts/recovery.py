"""Recovery of checkpoints that are newer than a database restored from a backup.

An attempt takes the newest one over by itself where the database is certainly older than the
storage. Otherwise a person decides: metric points between two checkpoints are lost with the rows.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db import transaction

from apps.checkpoints import integrity, place, remote, signatures, storage
from apps.checkpoints import services as checkpoints
from apps.checkpoints.cleaning import Unowned
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.signatures import Signature
from apps.checkpoints.storage import Stored
from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.errors import NotAllowed, OperationNotFound, StorageUnavailable
from apps.operations.lifecycle import ACTIVE
from apps.operations.models import Operation
from trainops.runtime import lossless
from trainops.runtime.checkpoint.manifest import MANIFEST, StagedCheckpoint, staged, verify
from trainops.runtime.errors import CheckpointCorrupted

if TYPE_CHECKING:
    from django.contrib.auth.models import User

logger = logging.getLogger(__name__)
EVENT = "CHECKPOINT_RECOVERED"


@dataclass(frozen=True, slots=True)
class Recovery:
    checkpoints: list[Checkpoint]  # newest first
    problems: list[str]  # of those that were left where they are

    @property
    def message(self) -> str:
        count = len(self.checkpoints)
        said = f"Recovered {count} checkpoint{'' if count == 1 else 's'}"
        if self.checkpoints:
            said += f", the newest at step {max(each.step for each in self.checkpoints)}"
        return "; ".join([said, *self.problems])


def unrecorded(operation: Operation) -> list[Stored]:
    """Return what is in the storage of an operation beyond all its rows, newest first.

    Raises OSError where the storage is away or does not answer.
    """
    place.require()
    return beyond_rows(operation, in_storage(operation))


def in_storage(operation: Operation) -> list[Stored]:
    """Return the checkpoints of an operation in the storage, asking nothing of the database."""
    if (bucket := remote.bucket()) is not None:
        return bucket.stored(operation_id=operation.pk)
    return list(storage.stored(operation.pk))


def beyond_rows(operation: Operation, found: Iterable[Stored]) -> list[Stored]:
    """Return those that are whole and newer than every row of the operation, newest first."""
    unowned = Unowned(operation.pk)
    newer = [each for each in found if unowned.holds(each) and unowned.is_newer(each)]
    return sorted(newer, key=lambda each: (each.attempt, each.step), reverse=True)


def recover(*, operation_id: str, actor: "User") -> Recovery:
    """Write the rows of an operation's unrecorded checkpoints, after verifying every byte of them.

    Raises OperationNotFound, NotAllowed while it may run, StorageUnavailable.
    """
    operation = Operation.objects.filter(pk=operation_id).first()
    if operation is None:
        raise OperationNotFound(operation_id)
    _require_inactive(operation)
    problems: list[str] = []
    try:
        read = list(_read(operation, unrecorded(operation), problems, is_asked=True))
    except OSError as error:
        raise StorageUnavailable(error) from error
    with transaction.atomic():
        locked = operation.row.select_for_update().get()
        _require_inactive(locked)
        # The attempts that wrote them were given out once: no later one may have their numbers.
        attempt = max([locked.attempt, *(stored.attempt for stored, *_ in read)])
        locked.row.update(attempt=attempt)
        rows = []
        for stored, written, signature in read:
            row = checkpoints.commit(
                operation_id=operation_id,
                attempt=stored.attempt,
                staged=written,
                signature=signature.text,
            )
            locked.record(EVENT, actor=actor.get_username(), note=_note(row, signature))
            rows.append(row)
    return Recovery(rows, problems)


def take_over_newest(writer: ReportWriter, found: Iterable[Stored]) -> Checkpoint | None:
    """Commit the newest unrecorded checkpoint as this attempt's, if the database is older.

    It certainly is where the storage holds an attempt that the database has not assigned before
    now, or no longer holds the newest checkpoint that the database knows.

    Raises:
        Fenced: this attempt no longer owns the operation.
    """
    operation = writer.operation
    newer = beyond_rows(operation, found)
    if not newer or not (newer[0].attempt >= operation.attempt or _has_lost_its_newest(operation)):
        return None
    problems: list[str] = []
    for _, written, signature in _read(operation, newer, problems, is_asked=False):
        checkpoint = writer.commit(written, signature=signature.text)
        operation.record(EVENT, actor=operation.worker_id, note=_note(checkpoint, signature))
        return checkpoint
    for problem in problems:
        logger.warning("%s: not recovered: %s", operation.pk, problem)
    return None


def _require_inactive(operation: Operation) -> None:
    if operation.state in ACTIVE:
        raise NotAllowed(
            "OPERATION_ACTIVE",
            f"It is {operation.state}: its checkpoints are in use.",
            current_status=operation.state,
        )


def _read(
    operation: Operation, found: Iterable[Stored], problems: list[str], *, is_asked: bool
) -> Iterator[tuple[Stored, StagedCheckpoint, Signature]]:
    """Yield what the row of each is made of, every byte verified; what is wrong is noted."""
    for each in found:
        path = each.artifacts_path
        try:
            written = _staged(operation, path)
            yield each, written, signatures.require_stored(path, written.digest, is_asked=is_asked)
        except CheckpointCorrupted as error:
            problems.append(str(error))


def _staged(operation: Operation, artifacts_path: str) -> StagedCheckpoint:
    directory = storage.directory(artifacts_path)
    if (bucket := remote.bucket()) is not None and not directory.exists():
        bucket.fetch(artifacts_path)
    checkpoint = verify(directory)
    manifest = lossless.loads((directory / MANIFEST).read_bytes())
    for name, expected in (("operation_id", operation.pk), ("config_hash", operation.config_hash)):
        if manifest.get(name) != expected:
            problem = f"its {name} is {manifest.get(name)}, the operation's is {expected}"
            raise CheckpointCorrupted(directory, altered=[MANIFEST], reason=problem)
    return staged(checkpoint)


def _has_lost_its_newest(operation: Operation) -> bool:
    newest = next(iter(checkpoints.to_resume_from(operation.pk)), None)
    return newest is not None and integrity.is_gone(newest)


def _note(checkpoint: Checkpoint, signature: Signature) -> str:
    return (
        f"the {checkpoint}, found in the storage and newer than the database, {signature}. Metric "
        "points that were recorded before it may be missing"
    )
