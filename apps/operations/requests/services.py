"""Requests of people about operations: a function each, keywords only; see also `deletion`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from django.db import transaction

from apps.checkpoints import integrity
from apps.checkpoints.models import Checkpoint
from apps.ledger import services as ledgers
from apps.operations import outbox
from apps.operations.errors import (
    CheckpointNotFound,
    NotAllowed,
    OperationNotFound,
    StorageUnavailable,
)
from apps.operations.lifecycle import ACTIVE, RESUMABLE, WAITING, Reason, State
from apps.operations.models import Operation, Subtask
from apps.operations.requests import changed_code, limits
from apps.operations.requests.submission import (
    submit as submit,
)  # re-exported: the first request about each
from apps.operations.scheduling import claims
from apps.operations.scheduling.dispatch import dispatch
from trainops.clock import DatabaseNow
from trainops.kind import KINDS
from trainops.runtime.errors import CheckpointCorrupted
from trainops.tracing import TRACING

if TYPE_CHECKING:
    from django.contrib.auth.models import User


@dataclass(frozen=True, slots=True)
class Skipped:
    """A checkpoint that a resume could not use, and why."""

    checkpoint: Checkpoint
    problem: CheckpointCorrupted


@dataclass(frozen=True, slots=True)
class Resumption:
    """What a resume continues from; `skipped` are newer, and damaged."""

    operation: Operation
    checkpoint: Checkpoint
    skipped: Sequence[Skipped]

    @property
    def message(self) -> str:
        """For people, e.g. "Training resumed from epoch 29"."""
        kind = KINDS[self.operation.kind]
        said = f"{kind.label} resumed from {position(self.checkpoint, self.operation)}"
        return "; ".join([said, *map(self._said, self.skipped)])

    def _said(self, skipped: Skipped) -> str:
        where = KINDS[self.operation.kind].place(skipped.checkpoint.state, skipped.checkpoint.step)
        return f"the checkpoint at {where} cannot be used: {skipped.problem.findings}"


def get(operation_id: str) -> Operation:
    try:
        return Operation.objects.select_related("owner").get(pk=operation_id)
    except Operation.DoesNotExist:
        raise OperationNotFound(operation_id) from None


def cancel(*, operation_id: str, actor: "User | None") -> Operation:
    """Ask it to save a checkpoint at its next safe point and stop.

    At once where no worker runs it: it waits, or its lease has expired.
    """
    return _stop(operation_id, actor, Operation.Stop.CANCEL, Reason.CANCELLED_BY_PERSON)


def kill(*, operation_id: str, actor: "User | None") -> Operation:
    """Stop it now: the last committed checkpoint stands, the work since then is lost."""
    return _stop(operation_id, actor, Operation.Stop.KILL, Reason.KILLED_BY_PERSON)


def _stop(
    operation_id: str, actor: "User | None", how: Operation.Stop, reason: Reason
) -> Operation:
    operation = get(operation_id)
    require_whole(operation)
    name = name_of(actor)
    waiting = operation.row.filter(state__in=WAITING)
    if waiting.move(State.CANCELLED, actor=name, note="not running", reason=reason):
        outbox.deliver()
        return get(operation_id)
    if claims.cancel_lost(operation, reason, actor=name):
        outbox.deliver()
        return get(operation_id)
    with transaction.atomic():
        asked = operation.row.filter(state=State.RUNNING)
        if how is Operation.Stop.CANCEL:
            asked = asked.filter(stop_requested="")
        else:
            asked = asked.exclude(stop_requested=Operation.Stop.KILL)
        if asked.update(
            stop_requested=how, stop_requested_at=DatabaseNow(), stop_requested_by=name
        ):
            operation.record(f"{how.upper()}_REQUESTED", actor=name)
            return get(operation_id)
    operation = get(operation_id)
    if operation.state in WAITING:  # handed back between the two questions
        return _stop(operation_id, actor, how, reason)
    raise _cannot_stop(operation, how)


def require_whole(operation: Operation) -> None:
    """Raise NotAllowed if it is a subtask: requests go to its parent."""
    subtask = Subtask.objects.filter(pk=operation.pk).select_related("operation").first()
    if subtask is not None:
        raise NotAllowed(
            "PART_OF_ANOTHER",
            f"This is {subtask} of {subtask.parent_id}; cancel, resume or delete that operation "
            "instead.",
            parent_id=subtask.parent_id,
        )


def _cannot_stop(operation: Operation, how: Operation.Stop) -> NotAllowed:
    if operation.state == State.RUNNING:
        return NotAllowed(
            "ALREADY_STOPPING",
            f"{operation.stop_requested_by} already requested a {operation.stop_requested}; "
            "the operation stops at its next safe point.",
            current_status=operation.state,
        )
    return NotAllowed(
        f"OPERATION_NOT_{'CANCELLABLE' if how is Operation.Stop.CANCEL else 'KILLABLE'}",
        f"The operation is {operation.state}; only waiting and running operations can be stopped.",
        current_status=operation.state,
        allowed_statuses=sorted(ACTIVE),
    )


def resume(
    *,
    operation_id: str,
    actor: "User",
    checkpoint_id: str = "",
    accept_inexact: bool = False,
) -> Resumption:
    """Continue the same operation from its newest healthy checkpoint, or from a chosen one.

    Its bytes are verified first, and those of a bucket by the worker that takes it: here only
    that they are there. An altered checkpoint is marked and the next older one is used, unless it
    was chosen by name. A refused resume leaves the operation exactly as it was. Files of the
    recipe that were changed since are a reason to refuse. `accept_inexact` overrides that, and
    `exact: required` of the config until the next resume.

    Raises CheckpointNotFound, NotAllowed, LimitReached, StorageUnavailable.
    """
    operation = resumable(operation_id)
    checkpoint, skipped = first_healthy(operation, checkpoint_id)
    if not accept_inexact:
        changed_code.require_same(operation, checkpoint)
    resumption = Resumption(operation, checkpoint, skipped)
    accepted = ["not exactly, if need be"] if accept_inexact else []
    problems = (str(each.problem) for each in skipped)
    note = "; ".join([f"from the {checkpoint}", *accepted, *problems])
    with transaction.atomic():
        moved = operation.row.filter(state__in=RESUMABLE).move(
            State.RESUMING,
            actor=name_of(actor),
            note=note,
            reason=Reason.NONE,
            error=None,
            not_before=None,
            restarts_used=0,
            resume_from=checkpoint.pk if checkpoint_id else "",
            accepts_inexact=accept_inexact,
            step=checkpoint.step,
            traceparent=TRACING.current(),
        )
        if not moved:
            _require_resumable(get(operation_id))
            raise NotAllowed(
                "OPERATION_NOT_RESUMABLE", "The operation was changed in the meantime; reload it."
            )
        # Deleting locks the same row: it was before, and is seen here, or it is refused.
        if not Checkpoint.objects.filter(pk=checkpoint.pk).exists():
            raise CheckpointNotFound(operation_id, checkpoint_id)
        transaction.on_commit(partial(dispatch, operation_id, operation.kind, operation.queue))
    return replace(resumption, operation=get(operation_id))


def resumable(operation_id: str) -> Operation:
    """Return an operation that may be resumed, if it has a checkpoint.

    Raises OperationNotFound, NotAllowed, LimitReached, LedgerBroken.
    """
    operation = get(operation_id)
    require_whole(operation)
    _require_resumable(operation)
    limits.require_active(operation.owner)
    if operation.uses_ledger:
        ledgers.verify(operation_id, operation.ledger_fields)
    return operation


def _require_resumable(operation: Operation) -> None:
    if operation.state not in RESUMABLE:
        raise NotAllowed(
            "OPERATION_NOT_RESUMABLE",
            f"The operation is {operation.state}; only {' and '.join(sorted(RESUMABLE))} "
            "operations can be resumed.",
            current_status=operation.state,
            resumable_statuses=sorted(RESUMABLE),
        )


def first_healthy(operation: Operation, checkpoint_id: str) -> tuple[Checkpoint, list[Skipped]]:
    """Return the checkpoint to resume from, and newer ones that are damaged.

    Those that are marked as corrupted already are not read again, and count as skipped, too.

    Raises CheckpointNotFound, NotAllowed; StorageUnavailable where nothing can be known.
    """
    skipped: list[Skipped] = []
    mine = Checkpoint.objects.filter(operation=operation).newest_first()
    for checkpoint in mine.named(operation.pk, checkpoint_id) if checkpoint_id else mine:
        problem = _problem_with(checkpoint, operation)
        if problem is None:
            return checkpoint, skipped
        skipped.append(Skipped(checkpoint, problem))
    if not skipped:
        raise CheckpointNotFound(operation.pk, checkpoint_id)
    newest = skipped[0]
    raise NotAllowed(
        "CHECKPOINT_CORRUPTED",
        "The checkpoints differ from what was saved; nothing was changed. "
        f"The {newest.checkpoint}: {newest.problem.findings}",
        checkpoint_id=newest.checkpoint.pk,
        missing_artifacts=newest.problem.missing,
        altered_artifacts=newest.problem.altered,
    )


def _problem_with(checkpoint: Checkpoint, operation: Operation) -> CheckpointCorrupted | None:
    if checkpoint.health == Checkpoint.Health.CORRUPTED:
        return checkpoint.damage
    try:
        problem = integrity.glance(checkpoint)
    except OSError as error:
        raise StorageUnavailable(error) from error
    if problem is not None:
        operation.record(
            "CHECKPOINT_UNAVAILABLE" if problem.is_incomplete else "CHECKPOINT_CORRUPTED",
            actor="verification",
            note=str(problem),
        )
    return problem


def position(checkpoint: Checkpoint, operation: Operation) -> str:
    """Return where a checkpoint stands, in the words of its kind: "epoch 29", "bar 7000"."""
    return KINDS[operation.kind].position(checkpoint.state, checkpoint.step).text


def name_of(person: "User | None") -> str:
    return person.get_username() if person else "system"
