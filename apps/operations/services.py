"""What people can ask of operations: one call per wish, keywords only."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from django.db import transaction

from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.operations import clients
from apps.operations.dispatch import dispatch
from apps.operations.errors import (
    CheckpointNotFound,
    NotAllowed,
    OperationNotFound,
    StorageUnavailable,
)
from apps.operations.lifecycle import ACTIVE, RESUMABLE, WAITING, Reason, State
from apps.operations.models import ClientPart, ModelUse, Operation
from apps.operations.submission import submit as submit  # the first of all wishes
from trainops.clock import DatabaseNow
from trainops.engines.registry import ENGINES

if TYPE_CHECKING:
    from django.contrib.auth.models import User


@dataclass(frozen=True, slots=True)
class Resumption:
    operation: Operation
    checkpoint: Checkpoint
    message: str  # e.g. "Training resumed from epoch 29"


def get(operation_id: str) -> Operation:
    try:
        return Operation.objects.select_related("owner").get(pk=operation_id)
    except Operation.DoesNotExist:
        raise OperationNotFound(operation_id) from None


def cancel(*, operation_id: str, actor: "User") -> Operation:
    """Ask it to save a checkpoint at its next safe point and stop; at once if nobody runs it."""
    return _stop(operation_id, actor, Operation.Stop.CANCEL, Reason.CANCELLED_BY_PERSON)


def kill(*, operation_id: str, actor: "User") -> Operation:
    """Stop it now: the last committed checkpoint stands, the work since then is lost."""
    return _stop(operation_id, actor, Operation.Stop.KILL, Reason.KILLED_BY_PERSON)


def _stop(operation_id: str, actor: "User", how: Operation.Stop, reason: Reason) -> Operation:
    operation = get(operation_id)
    require_whole(operation)
    name = _name(actor)
    waiting = operation.row.filter(state__in=WAITING)
    if waiting.move(State.CANCELLED, actor=name, note="it was waiting", reason=reason):
        clients.settle(operation)
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
    """Raise NotAllowed where it is a client's part of another: that one decides about it."""
    part = ClientPart.objects.filter(pk=operation.pk).first()
    if part is not None:
        raise NotAllowed(
            "PART_OF_ANOTHER",
            f"It is {part} of {part.server_id}, and goes with it: ask that of the whole one.",
            server_id=part.server_id,
        )


def _cannot_stop(operation: Operation, how: Operation.Stop) -> NotAllowed:
    if operation.state == State.RUNNING:
        return NotAllowed(
            "ALREADY_STOPPING",
            f"{operation.stop_requested_by} already asked to {operation.stop_requested} it; "
            "it stops at its next safe point.",
            current_status=operation.state,
        )
    return NotAllowed(
        f"OPERATION_NOT_{'CANCELLABLE' if how is Operation.Stop.CANCEL else 'KILLABLE'}",
        f"It is {operation.state}: only what waits or runs can be stopped.",
        current_status=operation.state,
        allowed_statuses=sorted(ACTIVE),
    )


def resume(*, operation_id: str, actor: "User", checkpoint_id: str = "") -> Resumption:
    """Continue the same operation from its newest healthy checkpoint, or from a chosen one.

    Its bytes are verified first, and those of a bucket by the worker that takes it: here only
    that they are there. An altered checkpoint is marked and the next older one is used, unless it
    was chosen by name. A refused resume leaves the operation exactly as it was.

    Raises CheckpointNotFound, NotAllowed, StorageUnavailable.
    """
    operation = get(operation_id)
    require_whole(operation)
    _require_resumable(operation)
    checkpoint, skipped = first_healthy(operation, checkpoint_id)
    note = f"from the {checkpoint}" + "".join(f"; {problem}" for problem in skipped)
    with transaction.atomic():
        moved = operation.row.filter(state__in=RESUMABLE).move(
            State.RESUMING,
            actor=_name(actor),
            note=note,
            reason=Reason.NONE,
            error=None,
            not_before=None,
            restarts_used=0,
            resume_from=checkpoint_id,
            step=checkpoint.step,
        )
        if not moved:
            _require_resumable(get(operation_id))
            raise NotAllowed(
                "OPERATION_NOT_RESUMABLE", "Somebody else changed it meanwhile; look again."
            )
        # Deleting locks the same row: it was before, and is seen here, or it is refused.
        if not Checkpoint.objects.filter(pk=checkpoint.pk).exists():
            raise CheckpointNotFound(operation_id, checkpoint_id)
        transaction.on_commit(partial(dispatch, operation_id, operation.kind, operation.queue))
    return Resumption(
        get(operation_id),
        checkpoint,
        f"{kind_label(operation)} resumed from {position(checkpoint, operation)}",
    )


def _require_resumable(operation: Operation) -> None:
    if operation.state not in RESUMABLE:
        raise NotAllowed(
            "OPERATION_NOT_RESUMABLE",
            f"It is {operation.state}: only {' and '.join(sorted(RESUMABLE))} operations resume.",
            current_status=operation.state,
            resumable_statuses=sorted(RESUMABLE),
        )


def first_healthy(operation: Operation, checkpoint_id: str) -> tuple[Checkpoint, list[str]]:
    """Return the checkpoint to resume from and what was wrong with newer ones.

    Raises StorageUnavailable where nothing can be known.
    """
    skipped: list[str] = []
    problem = None
    for checkpoint in checkpoints.to_resume_from(operation.pk, checkpoint_id):
        try:
            problem = checkpoints.glance(checkpoint)
        except OSError as error:
            raise StorageUnavailable(error) from error
        if problem is None:
            return checkpoint, skipped
        skipped.append(f"the one at step {checkpoint.step} is corrupted ({problem})")
        operation.record("CHECKPOINT_CORRUPTED", actor="verification", note=str(problem))
    if problem is None:
        raise _nothing_to_resume_from(operation, checkpoint_id)
    raise NotAllowed(
        "CHECKPOINT_CORRUPTED",
        "The bytes of its checkpoints are not what was saved; nothing was changed.",
        missing_artifacts=problem.missing,
        altered_artifacts=problem.altered,
    )


def _nothing_to_resume_from(operation: Operation, checkpoint_id: str) -> Exception:
    mine = Checkpoint.objects.filter(operation=operation, health=Checkpoint.Health.CORRUPTED)
    if checkpoint_id:
        mine = mine.filter(pk=checkpoint_id)
    if known := mine.newest_first().first():
        return NotAllowed(
            "CHECKPOINT_CORRUPTED",
            f"The {known} is marked corrupted: {known.problem}",
            missing_artifacts=[],
            altered_artifacts=[],
            problem=known.problem,
        )
    return CheckpointNotFound(operation.pk, checkpoint_id)


def delete(*, operation_id: str, actor: "User") -> checkpoints.Freed:
    """Delete an operation with everything that belongs to it; refused while it may still run."""
    operation = get(operation_id)
    require_whole(operation)
    if operation.state in ACTIVE:
        raise NotAllowed(
            "OPERATION_ACTIVE",
            f"It is {operation.state}: cancel it first, then delete it.",
            current_status=operation.state,
        )
    with transaction.atomic():
        finished = operation.row.exclude(state__in=ACTIVE).select_for_update().first()
        if finished is None:
            raise NotAllowed("OPERATION_ACTIVE", "It was resumed a moment ago; cancel it first.")
        _require_unused(operation_id)
        freed = clients.let_go(finished, ClientPart.objects.filter(server=finished))
        freed += checkpoints.delete(Checkpoint.objects.filter(operation_id=operation_id))
        finished.delete()
    return freed


def delete_checkpoints(
    *, operation_id: str, actor: "User", checkpoint_id: str = ""
) -> checkpoints.Freed:
    """Delete one checkpoint of an operation, or all; refused while it runs."""
    with transaction.atomic():
        # The lock makes a resume wait: it finds its checkpoint gone, or this finds it resumed.
        operation = Operation.objects.select_for_update().filter(pk=operation_id).first()
        if operation is None:
            raise OperationNotFound(operation_id)
        require_whole(operation)
        if operation.state in ACTIVE:
            raise NotAllowed(
                "OPERATION_ACTIVE",
                f"It is {operation.state}: its checkpoints are in use.",
                current_status=operation.state,
            )
        _require_unused(operation_id)
        chosen = Checkpoint.objects.filter(operation_id=operation_id)
        if checkpoint_id:
            chosen = chosen.filter(pk=checkpoint_id)
            if not chosen.exists():
                raise CheckpointNotFound(operation_id, checkpoint_id)
        freed = checkpoints.delete(chosen)
        operation.record(
            "CHECKPOINTS_DELETED",
            actor=_name(actor),
            note=f"{freed.num_checkpoints} checkpoints, {freed.freed_bytes} bytes",
        )
    return freed


def _require_unused(operation_id: str) -> None:
    if users := ModelUse.active_users_of(operation_id):
        raise NotAllowed(
            "MODEL_IN_USE",
            f"Its model is in use by {', '.join(users[:5])}; cancel those first, or let them end.",
            used_by=users,
        )


def kind_label(operation: Operation) -> str:
    return ENGINES[operation.kind].label


def position(checkpoint: Checkpoint, operation: Operation) -> str:
    """Return where a checkpoint stands, in the words of its kind: "epoch 29", "step 1500"."""
    epoch = checkpoint.state.get("epoch")
    return f"epoch {epoch}" if epoch is not None else f"{operation.unit} {checkpoint.step}"


def _name(person: "User | None") -> str:
    return person.get_username() if person else "system"
