"""Attempts of workers over HTTP: the supervisor's duties, one function per call after the claim.

Such a worker has neither the database's address nor the storage's. Every call names operation and
attempt, is under the fence, and renews the lease; an attempt that is to be killed gets no more
time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from apps.checkpoints import integrity, storage
from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.operations import inputs
from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.errors import NotAllowed, StorageUnavailable
from apps.operations.lifecycle import Reason
from apps.operations.models import Attempt, Operation
from apps.operations.scheduling import claims, handbacks
from trainops.process.protocol import MediaLogged, ProgressUpdate
from trainops.runtime.durations import max_seconds
from trainops.runtime.errors import CheckpointCorrupted
from trainops.runtime.receipt import ReceiptJson

PROCEED = "proceed"


@dataclass(frozen=True, slots=True)
class RemoteDirective:
    """What a worker has to do with its attempt: proceed, cancel, preempt or kill it."""

    directive: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RemoteProgress:
    """Progress of an attempt since the last report; see the API's description."""

    step: int
    total_steps: int
    place: str = ""
    points: Iterable[tuple[int, datetime, Mapping[str, float]]] = ()
    log: str = ""
    steps_per_second: float | None = None


def owned(*, worker_id: str, operation_id: str, attempt: int) -> Operation:
    """Return the operation, if this worker's attempt owns it. Raises NotAllowed (SUPERSEDED)."""
    mine = Operation.objects.owned(operation_id, attempt).filter(worker_id=worker_id)
    operation = mine.first()
    if operation is None:
        raise superseded(operation_id, attempt)
    return operation


def superseded(operation_id: str, attempt: int) -> NotAllowed:
    row = Operation.objects.filter(pk=operation_id).values("state", "attempt").first()
    return NotAllowed(
        "SUPERSEDED",
        f"Attempt {attempt} does not own {operation_id[:64]}: stop it; nothing was written.",
        current_status=row["state"] if row else None,
        current_attempt=row["attempt"] if row else None,
    )


def restored(
    operation: Operation, *, receipt: ReceiptJson, step: int, measured_to: int | None = None
) -> RemoteDirective:
    """Write down where the attempt starts, and how exact that is. Raises Fenced.

    `measured_to`: see `ReportWriter.restored`.
    """
    if receipt.get("checkpoint"):
        integrity.heal(f"{operation.pk}/{receipt['checkpoint']}")
    writer = ReportWriter.continued(operation)
    writer.restored(receipt, step, measured_to)
    writer.flush()
    return directive(Operation.objects.get(pk=operation.pk))


def reported(operation: Operation, report: RemoteProgress) -> RemoteDirective:
    """Record progress, metric points and output. Raises Fenced."""
    writer = ReportWriter.continued(operation)
    writer.step, writer.place = operation.step, operation.place  # what does not move is no progress
    writer.output.add(report.log.encode())
    writer.progress(
        ProgressUpdate(
            report.step,
            report.total_steps,
            report.place,
            tuple((step, at.timestamp(), values) for step, at, values in report.points),
        )
    )
    if report.steps_per_second is not None:
        writer.fields["steps_per_second"] = report.steps_per_second
    writer.flush()
    return renewed(Operation.objects.get(pk=operation.pk))


def logged(operation: Operation, messages: Iterable[MediaLogged]) -> RemoteDirective:
    """Record what the recipe logged. Raises Fenced, and MediaError: nothing was written."""
    writer = ReportWriter.continued(operation)
    for each in messages:
        each.item()
        writer.logged(each)
    writer.flush()
    return renewed(Operation.objects.get(pk=operation.pk))


def renewed(operation: Operation) -> RemoteDirective:
    """Return the directive; renew the lease unless it is to kill."""
    answer = directive(operation)
    if answer.directive != "kill":
        claims.renew(operation.worker_id, [(operation.pk, operation.attempt)])
    return answer


def directive(operation: Operation) -> RemoteDirective:
    """Return the directive for a running attempt, by stop requests, limits and progress."""
    limits, moment = operation.config["limits"], timezone.now()
    if operation.stop_requested == Operation.Stop.KILL:
        return RemoteDirective("kill", Reason.KILLED_BY_PERSON)
    if operation.stop_requested == Operation.Stop.CANCEL:
        asked_at = operation.stop_requested_at or moment
        is_overdue = (moment - asked_at).total_seconds() > limits["cancel_timeout_seconds"]
        if is_overdue:
            return RemoteDirective("kill", Reason.CANCEL_TIMEOUT)
        return RemoteDirective("cancel", Reason.CANCELLED_BY_PERSON)
    if _seconds_since(operation.progressed_at) > limits["stall_timeout_seconds"]:
        return RemoteDirective("kill", Reason.STALLED)
    if is_out_of_time(operation):
        return RemoteDirective("preempt", Reason.TIME_LIMIT)
    key = operation.pk, operation.attempt
    if (handback := handbacks.requested([key]).get(key)) is not None:
        return RemoteDirective("preempt", handback.reason)
    return RemoteDirective(PROCEED)


def is_out_of_time(operation: Operation) -> bool:
    """Whether all attempts of the operation together took longer than its config allows."""
    longest = max_seconds(operation.config["limits"])
    if not longest:
        return False
    attempt = Attempt.objects.get(operation=operation, number=operation.attempt)
    spent = Attempt.seconds_spent(operation.pk) + _seconds_since(attempt.started_at)
    return bool(spent > longest)


def _seconds_since(moment: datetime | None) -> float:
    return (timezone.now() - moment).total_seconds() if moment else 0.0


def readable(operation: Operation, checkpoint_id: str) -> Checkpoint:
    """Return a checkpoint that the attempt may read: its own, or of a model that it uses.

    Raises NotAllowed.
    """
    usable = [*checkpoints.to_resume_from(operation.pk), *inputs.models_of(operation).values()]
    for checkpoint in usable:
        if checkpoint.pk == checkpoint_id:
            return checkpoint
    raise NotAllowed(
        "CHECKPOINT_NOT_READABLE",
        f"got {checkpoint_id[:64]!r}; allowed: a checkpoint that this attempt may start from.",
        allowed=[each.pk for each in usable],
    )


def damaged(
    operation: Operation, checkpoint_id: str, *, missing: list[str], altered: list[str]
) -> None:
    """Look at a checkpoint that a worker found damaged, and write down what is found here.

    Raises NotAllowed, StorageUnavailable.
    """
    checkpoint = readable(operation, checkpoint_id)
    damage = CheckpointCorrupted(
        storage.directory(checkpoint.artifacts_path), missing=missing, altered=altered
    )
    try:
        problem = integrity.check(checkpoint)
    except OSError as error:
        raise StorageUnavailable(error) from error
    note = f"on {operation.worker_id}: {damage.findings}; on the server: {problem or 'undamaged'}"
    operation.record("CHECKPOINT_REPORTED", actor=operation.worker_id, note=note)
