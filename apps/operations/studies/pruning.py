"""Operations of a study that its pruner stops early, at a checkpoint."""

import logging

from django.db import transaction

from apps.operations.lifecycle import Reason, State
from apps.operations.models import Attempt, Operation, Study, Suggestion
from apps.operations.models.queryset import OperationQuerySet
from apps.operations.studies import asking, reports
from apps.operations.studies.designs import Design
from trainops.clock import DatabaseNow
from trainops.runtime.checkpoint.manifest import CheckpointType

logger = logging.getLogger(__name__)
ACTOR = "pruner"


def checkpoint_committed(operation: Operation, checkpoint_type: CheckpointType) -> None:
    """Request a stop of the operation if the pruner of its study decides so.

    Only periodic checkpoints count: after others the attempt ends anyway. An operation that was
    resumed after it was pruned is not pruned again. Errors are logged: the next checkpoint is
    another opportunity.
    """
    if operation.study_id is None or checkpoint_type is not CheckpointType.PERIODIC:
        return
    try:
        _prune(operation)
    except Exception:
        logger.exception("%s: the pruner of its study failed", operation.pk)


def _prune(operation: Operation) -> None:
    """Read and decide without a lock; a transaction only writes what was decided.

    Trials of which checkpoints are committed at the same moment may not see each other's values.
    """
    study = Study.objects.get(pk=operation.study_id)
    design = Design.of_row(study.design)
    if design.pruner is None or not _running(operation).exists() or _was_pruned(operation):
        return
    suggestion = study.suggestions.filter(operation=operation).first()
    if suggestion is None:
        return
    reported = reports.at_checkpoint(study, design.pruner, operation)
    search = asking.search_of(study, design, reported)
    is_to_be_pruned = search.is_to_be_pruned(suggestion.number)
    state = search.trials[suggestion.number].system_attrs
    with transaction.atomic():
        Suggestion.objects.filter(pk=suggestion.pk).update(state=asking.packed(state))
        if is_to_be_pruned:
            _request_stop(operation, design.pruner.method)


def _running(operation: Operation) -> OperationQuerySet:
    """Return the operation's row, if this attempt is running and no stop is requested."""
    return operation.row.filter(state=State.RUNNING, attempt=operation.attempt, stop_requested="")


def _was_pruned(operation: Operation) -> bool:
    return Attempt.objects.filter(operation=operation, reason=Reason.PRUNED).exists()


def _request_stop(operation: Operation, method: str) -> None:
    asked = _running(operation).update(
        stop_requested=Operation.Stop.CANCEL,
        stop_requested_at=DatabaseNow(),
        stop_requested_by=ACTOR,
        stop_reason=Reason.PRUNED,
    )
    if asked:
        operation.record("CANCEL_REQUESTED", actor=ACTOR, note=f"pruned by {method}")
