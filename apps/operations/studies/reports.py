"""Values that the trials of a study reported of the pruner's metric, read as far as needed.

They are numbered from 1. Numbers and not steps: the steps of trials differ, for example with the
batch size. Optuna compares in the study's direction, so values of the other mode change their sign.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from django.db.models import Count, OuterRef, QuerySet, Subquery

from apps.operations.lifecycle import Reason, State
from apps.operations.models import MetricPoint, Operation, Study
from apps.operations.studies.designs import Pruner

Reports: TypeAlias = Mapping[str | None, Mapping[int, float]]  # by operation and number


def of_pruned(study: Study, pruner: Pruner) -> Reports:
    """Return the last value of each pruned trial: a sampler needs it instead of a result."""
    return _last(study, pruner, study.operations.filter(reason=Reason.PRUNED))


def at_checkpoint(study: Study, pruner: Pruner, operation: Operation) -> Reports:
    """Return all values of the operation, and of the completed trials what it is compared with."""
    points = _points(pruner, retired_by=None, operation=operation).order_by("step")
    sign = _sign(study, pruner)
    own = {
        number: sign * value
        for number, value in enumerate(points.values_list("value", flat=True), start=1)
        if value is not None
    }
    completed = study.operations.filter(state=State.COMPLETED)
    others: Reports = {}  # asha compares what it stored with the trials
    if pruner.method == "median" and own:
        others = _at(study, pruner, completed, max(own))
    elif pruner.method == "hyperband":
        others = _last(study, pruner, completed)
    return {**others, operation.pk: own}


def _at(study: Study, pruner: Pruner, operations: QuerySet[Operation], number: int) -> Reports:
    """Return the value of that number of each operation that has one.

    Its step is found in the index alone, so every step counts once, however many attempts ran it.
    """
    steps = _points(pruner, operation=OuterRef("pk")).order_by("step").values("step").distinct()
    values = _points(pruner, operation=OuterRef("pk"), retired_by=None, step=OuterRef("found"))
    rows = operations.annotate(found=Subquery(steps[number - 1 : number])).annotate(
        value=Subquery(values.order_by().values("value")[:1])
    )
    return {
        operation_id: {number: _sign(study, pruner) * value}
        for operation_id, value in rows.values_list("pk", "value")
        if value is not None
    }


def _last(study: Study, pruner: Pruner, operations: QuerySet[Operation]) -> Reports:
    """Return the last value of each operation that has one, with its number."""
    points = _points(pruner, operation=OuterRef("pk"))
    counted = points.order_by().values("operation").annotate(number=Count("step", distinct=True))
    standing = points.filter(retired_by=None, value__isnull=False).order_by("-step")
    rows = operations.annotate(
        number=Subquery(counted.values("number")), value=Subquery(standing.values("value")[:1])
    )
    return {
        operation_id: {number: _sign(study, pruner) * value}
        for operation_id, number, value in rows.values_list("pk", "number", "value")
        if value is not None
    }


def _points(pruner: Pruner, **which: Any) -> QuerySet[MetricPoint]:
    return MetricPoint.objects.filter(name=pruner.metric, **which)


def _sign(study: Study, pruner: Pruner) -> int:
    return 1 if pruner.mode == study.mode else -1
