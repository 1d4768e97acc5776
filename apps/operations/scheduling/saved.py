"""Notes on what was saved at the end of an attempt, from the rows in the database."""

from apps.checkpoints import services as checkpoints
from apps.operations.models import Operation
from trainops.runtime.checkpoint.manifest import CheckpointType

TAKEN_AT_AN_END = frozenset(
    {CheckpointType.CANCELLATION, CheckpointType.SHUTDOWN, CheckpointType.FAILURE}
)


def with_what_was_saved(operation: Operation, note: str) -> str:
    """Add to the note what a resume would start from, and a save that failed since.

    It says "saved" only of a checkpoint that was taken for this end, or is of the last step.
    """
    newest = next(iter(checkpoints.to_resume_from(operation.pk)), None)
    failed = operation.events.filter(what="SAVE_FAILED", attempt=operation.attempt).first()
    if failed is not None and (newest is None or failed.at >= newest.created_at):
        kept = f"the {newest} is the last one" if newest else "there is no checkpoint"
        return f"{note}; {failed.note}; {kept}"
    if newest is None:
        return f"{note}; nothing was saved"
    is_for_this_end = newest.attempt == operation.attempt and newest.type in TAKEN_AT_AN_END
    if is_for_this_end or newest.step == _last_step(operation):
        return f"{note}; saved: {newest}"
    return f"{note}; nothing newer was saved: the {newest} is the last one"


def _last_step(operation: Operation) -> int:
    return Operation.objects.values_list("step", flat=True).get(pk=operation.pk)
