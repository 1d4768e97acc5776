"""Whether resumes before a checkpoint were exact, as the receipts of the attempts say."""

from apps.checkpoints import storage
from apps.checkpoints.models import Checkpoint
from apps.operations.models import Attempt, Operation

SENTENCE = "The operation was continued inexactly before."


def any_inexact(operation: Operation, start: Checkpoint) -> bool:
    """Return whether a resume that led to this checkpoint of the operation was not exact.

    Of an operation that it was forked from, each attempt that began before the fork counts.
    """
    return _led_by_inexact(operation, start.attempt) or _forked_from_inexact(operation)


def _led_by_inexact(operation: Operation, attempt: int) -> bool:
    """Follow the checkpoints that attempts started from, back to the first."""
    rows = Attempt.objects.filter(operation=operation, number__lte=attempt).exclude(receipt=None)
    receipts = dict(rows.values_list("number", "receipt"))
    while (receipt := receipts.get(attempt)) is not None:
        if not receipt.get("exact", True):
            return True
        name = receipt.get("checkpoint")
        before = storage.attempt_of(str(name)) if name else 0
        if before >= attempt:  # a database that was restored from a backup
            return False
        attempt = before
    return False


def _forked_from_inexact(operation: Operation) -> bool:
    fork, source = operation, operation.forked_from
    while source is not None:
        attempts = Attempt.objects.filter(operation=source).exclude(receipt=None)
        rows = attempts.values_list("started_at", "receipt")
        begun = [receipt or {} for started_at, receipt in rows if started_at <= fork.created_at]
        if not all(each.get("exact", True) for each in begun):
            return True
        fork, source = source, source.forked_from
    return False
