"""Submission of what follows from the operations of a study that have ended.

The trials of a study are suggested and submitted by `asking.fill`, again whenever one ends. A
walk-forward analysis goes in two steps: once all operations that a fold's values are chosen on
have ended, the best ones are tried on the days that follow.
"""

import logging
from collections.abc import Iterable
from datetime import timedelta
from functools import partial

from django.db import transaction
from django.db.models import Count, F, Q

from apps.installation import periodic
from apps.operations.lifecycle import ACTIVE, State
from apps.operations.models import Event, Operation, Study
from apps.operations.requests import limits
from apps.operations.requests.submission import InStudy
from apps.operations.studies import asking
from apps.operations.studies.asking import submit_part, value_of
from apps.operations.studies.designs import Fold, LeftOut, put
from trainops.errors import DomainError
from trainops.runtime.errors import ConfigError

JOB, ADVANCE_EVERY = "studies", timedelta(minutes=5)

logger = logging.getLogger(__name__)


def advance(study_id: str) -> int:
    """Submit what follows from what has ended; calling it again does nothing. Returns how many.

    These are the next trials or, in a walk-forward analysis, what was chosen in each fold whose
    operations have all ended.
    """
    with transaction.atomic():
        # Two workers whose operations end at once: the second waits here, and finds it done.
        study = Study.objects.select_for_update().filter(pk=study_id, stopped_at=None).first()
        if study is None:
            return 0
        if study.num_trials:
            return asking.fill(study)
        tried = set(study.operations.filter(is_test=True).values_list("fold", flat=True))
        waiting = set(study.operations.filter(state__in=ACTIVE).values_list("fold", flat=True))
        ready = [Fold.from_json(each) for each in study.folds]
        ready = [fold for fold in ready if fold.number not in tried | waiting]
        num_granted = limits.granted_active(study.owner, len(ready))
        return sum(_try(study, fold) for fold in ready[:num_granted])


def operation_ended(event: Event) -> None:
    """Subscriber: advance the study of an operation that has ended, and those it made room for."""
    operation = Operation.objects.filter(pk=event.operation_id).first()
    if operation is None:
        return
    if operation.study_id is not None:
        advance(operation.study_id)
    if operation.owner_id is not None:
        for study_id in _waiting(owner_id=operation.owner_id):
            _advance_other(study_id)


def operation_deleted(operation: Operation) -> None:
    """Advance the study of a deleted operation: the event of its end was deleted with it.

    A fold whose test is deleted is not tried again.
    """
    if operation.study_id is None:
        return
    if operation.is_test:
        _leave_untried(operation)
    transaction.on_commit(partial(_advance_other, operation.study_id))


def advance_if_due() -> None:
    """Advance all studies that have more to submit, every few minutes.

    The end of an operation does that at once. This is for studies whose event was missed.
    """
    if periodic.claim(JOB, every=ADVANCE_EVERY):
        for study_id in _waiting():
            _advance_other(study_id)


def _advance_other(study_id: str) -> None:
    """Advance a study; an error is logged, so that it does not stop the others."""
    try:
        advance(study_id)
    except Exception:
        logger.exception("%s is not advanced", study_id)


def _waiting(**owned: int) -> list[str]:
    """Return the studies that have more to submit.

    The limit of the owner may have been reached when operations of theirs ended.
    """
    studies = Study.objects.filter(stopped_at=None, **owned).annotate(
        num_suggestions=Count("suggestions", distinct=True),
        num_operations=Count("operations", distinct=True),
    )
    trials = Q(num_trials__gt=F("num_suggestions"))
    folds = Q(num_trials=0, num_planned__gt=F("num_operations"))
    return list(studies.filter(trials | folds).order_by("pk").values_list("pk", flat=True))


def _try(study: Study, fold: Fold) -> bool:
    chosen = best(study, study.operations.filter(fold=fold.number, is_test=False))
    if chosen is None:
        return False  # none of them completed: there is nothing to try
    values = chosen.study_values | fold.config(is_test=True)
    part = InStudy(study.pk, chosen.study_values, fold.number, is_test=True)
    try:
        with transaction.atomic():
            submit_part(study, put(study.config, values), part)
    except (ConfigError, DomainError) as error:  # what it needs was deleted meanwhile
        logger.warning("%s: fold %s cannot be tried: %s", study.pk, fold.number, error)
        _give_up(study, fold.number, str(error))
        return False
    return True


def _leave_untried(test: Operation) -> None:
    """Leave the fold of a deleted test untried, unless there is another test of it."""
    study = Study.objects.select_for_update().filter(pk=test.study_id).first()
    if study and not study.operations.filter(fold=test.fold, is_test=True).exists():
        _give_up(study, test.fold, "Its out-of-sample test was deleted.")


def _give_up(study: Study, fold: int, problem: str) -> None:
    """Leave a fold untried, and say why."""
    study.left_out.append(LeftOut(values={"fold": fold}, problem=problem[:300]))
    study.folds = [each for each in study.folds if each["number"] != fold]
    study.save(update_fields=["left_out", "folds"])


def best(study: Study, operations: Iterable[Operation]) -> Operation | None:
    """Return the best by the study's metric, the first of equals; None where none has it."""
    sign = 1 if study.mode == "min" else -1
    judged = [
        (sign * value, operation.pk, operation)
        for operation in operations
        if operation.state == State.COMPLETED
        and (value := value_of(operation.result, study.metric)) is not None
    ]
    return min(judged)[2] if judged else None
