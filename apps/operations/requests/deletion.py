"""Delete an operation, or checkpoints of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from django.db import transaction

from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.operations.errors import (
    CheckpointNotFound,
    NotAllowed,
    OperationNotFound,
)
from apps.operations.files import exports
from apps.operations.lifecycle import ACTIVE
from apps.operations.models import ModelUse, Operation, PastUse, Study, Subtask
from apps.operations.requests.submission import submit as submit  # re-exported, as in `services`
from apps.operations.subtasks import services as subtasks

if TYPE_CHECKING:
    from django.contrib.auth.models import User

from apps.operations.requests.services import get, name_of, require_whole
from trainops.http.access_log import note


@dataclass(frozen=True, slots=True)
class Deletion:
    """What deleting an operation's checkpoints freed, and which it kept."""

    freed: checkpoints.Freed
    kept: Sequence[Checkpoint]


def delete(*, operation_id: str, actor: "User | None") -> checkpoints.Freed:
    """Delete an operation with everything that belongs to it; refused while it may still run."""
    operation = get(operation_id)
    require_whole(operation)
    if operation.state in ACTIVE:
        raise NotAllowed(
            "OPERATION_ACTIVE",
            f"The operation is {operation.state}; cancel it first, then delete it.",
            current_status=operation.state,
        )
    with transaction.atomic():
        if operation.study_id is not None:  # before the operation, as what advances a study does
            Study.objects.select_for_update().filter(pk=operation.study_id).first()
        finished = operation.row.exclude(state__in=ACTIVE).select_for_update().first()
        if finished is None:
            raise NotAllowed(
                "OPERATION_ACTIVE",
                "The operation was just resumed; cancel it first, then delete it.",
            )
        _require_unused(operation_id)
        freed = subtasks.delete(finished, Subtask.objects.filter(parent=finished))
        freed += checkpoints.delete(Checkpoint.objects.filter(operation_id=operation_id))
        PastUse.keep(finished.row)
        Study.keep_seconds(finished)
        finished.delete()
        note("operation deleted", operation=operation_id, name=operation.name, freed=freed)
        transaction.on_commit(partial(exports.remove, operation_id))
    return freed


def delete_checkpoints(*, operation_id: str, actor: "User", checkpoint_id: str = "") -> Deletion:
    """Delete one checkpoint of an operation, or those that it would be resumed from.

    Results (final ones) and pinned ones are deleted only where they are named one by one.

    Raises OperationNotFound, CheckpointNotFound, NotAllowed while it runs or its model is in use.
    """
    with transaction.atomic():
        # The lock makes a resume wait: it finds its checkpoint gone, or this finds it resumed.
        operation = Operation.objects.select_for_update().filter(pk=operation_id).first()
        if operation is None:
            raise OperationNotFound(operation_id)
        require_deletable(operation)
        mine = Checkpoint.objects.filter(operation_id=operation_id)
        chosen = (
            mine.named(operation_id, checkpoint_id)
            if checkpoint_id
            else mine.spared(is_spared=False)
        )
        kept = [] if checkpoint_id else list(mine.spared())
        if not kept and not chosen.exists():
            raise CheckpointNotFound(operation_id, checkpoint_id)
        freed = checkpoints.delete(chosen)
        if freed.num_checkpoints:
            operation.record("CHECKPOINTS_DELETED", actor=name_of(actor), note=str(freed))
            note("checkpoints deleted", operation=operation_id, freed=freed)
    return Deletion(freed, kept)


def require_deletable(operation: Operation) -> None:
    """Raise NotAllowed while an operation runs, or its model is in use."""
    require_whole(operation)
    if operation.state in ACTIVE:
        raise NotAllowed(
            "OPERATION_ACTIVE",
            f"The operation is {operation.state}: its checkpoints are in use.",
            current_status=operation.state,
        )
    _require_unused(operation.pk)


def _require_unused(operation_id: str) -> None:
    if users := ModelUse.active_users_of(operation_id):
        raise NotAllowed(
            "MODEL_IN_USE",
            f"Its model is in use by {', '.join(users[:5])}; cancel them or wait for them.",
            used_by=users,
        )
