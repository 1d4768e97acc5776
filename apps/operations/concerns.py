"""Raise and clear concerns of operations: reasons for attention that no other column holds."""

from django.db import transaction

from apps.checkpoints.models import Checkpoint
from apps.operations import attention
from apps.operations.attention import Attention
from apps.operations.models import Attempt, Operation, OperationQuerySet

ACTOR = "platform"


def raise_for(rows: OperationQuerySet, reason: Attention, *, actor: str, note: str) -> bool:
    """Add a concern to the one operation in `rows`, with an event; whether it is new.

    A new concern needs attention also where an earlier one was acknowledged.
    """
    with transaction.atomic():
        row = rows.select_for_update().first()
        if row is None or reason in attention.split(row.concerns):
            return False
        concerns = attention.joined([*attention.split(row.concerns), reason])
        same = rows.filter(concerns=row.concerns)
        if not same.update(concerns=concerns, **attention.UNACKNOWLEDGED):
            return False
        row.record(reason, actor=actor, note=note)
    return True


def clear(rows: OperationQuerySet, *reasons: Attention) -> bool:
    """Remove these concerns from the one operation in `rows`; whether it had any of them."""
    before = rows.exclude(concerns="").values_list("concerns", flat=True).first() or ""
    after = attention.joined(set(attention.split(before)) - set(reasons))
    return before != after and bool(rows.filter(concerns=before).update(concerns=after))


def not_saved(operation: Operation, error: str) -> None:
    """Record that the attempt of the operation could not save a checkpoint."""
    operation.record("SAVE_FAILED", actor=operation.worker_id, note=error)
    owned = Operation.objects.owned(operation.pk, operation.attempt)
    raise_for(owned, Attention.NOT_SAVED, actor=operation.worker_id, note=error)


def checkpoint_committed(operation: Operation, step: int) -> None:
    """Clear what a new checkpoint disproves; called within the transaction of its commit."""
    cleared = [Attention.NOT_SAVED]
    earlier = Attempt.objects.filter(operation=operation, number__lt=operation.attempt)
    if not earlier.filter(to_step__gte=step).exists():  # further than each attempt before
        cleared.append(Attention.CRASH_LOOPING)
    clear(operation.row, *cleared)


def check_damage(operation_id: str) -> None:
    """Raise or clear the concern about altered checkpoints, from their rows."""
    rows = Operation.objects.filter(pk=operation_id)
    damaged = Checkpoint.objects.filter(operation_id=operation_id)
    found = damaged.filter(health=Checkpoint.Health.CORRUPTED).first()
    if found is None:
        clear(rows, Attention.CORRUPTED)
    else:
        raise_for(rows, Attention.CORRUPTED, actor=ACTOR, note=f"{found}: {found.problem}")
