"""The lowest and the highest finite value of each metric of an operation, over its whole run.

Points that a resume retired do not count, nor those that are no metrics of the operation.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from django.db.models import Max, Min

from apps.operations.lifecycle import FINISHED
from apps.operations.models import MetricPoint, Operation
from apps.operations.points.metric_queries import of_metrics
from apps.operations.points.new_points import NewPoint
from trainops.media.names import is_metric

Extremes: TypeAlias = dict[str, list[float]]  # by metric: the lowest and the highest value
PAGE = 100


def measured(operation_id: str) -> Extremes:
    """Return the extremes of the points that stand; reads all of them."""
    points = MetricPoint.objects.filter(
        operation_id=operation_id, retired_by=None, value__isnull=False
    )
    found = of_metrics(points).order_by().values_list("name")
    return {name: [low, high] for name, low, high in found.annotate(Min("value"), Max("value"))}


def widened(extremes: Mapping[str, list[float]], points: Iterable[NewPoint]) -> Extremes:
    """Return the extremes with further points."""
    found = dict(extremes)
    for point in points:
        value = point.value
        if value is not None and is_metric(point.name):
            low, high = found.get(point.name, (value, value))
            found[point.name] = [min(low, value), max(high, value)]
    return found


def measure_left() -> int:
    """Count the extremes of ended operations of earlier versions; return how many these were.

    Those that run count their own. Each transaction is short, so that an interrupted run is
    continued by the next one.
    """
    num_counted = 0
    left = Operation.objects.filter(extremes__isnull=True, state__in=FINISHED).order_by("pk")
    while ids := list(left.values_list("pk", flat=True)[:PAGE]):
        for operation_id in ids:
            row = Operation.objects.filter(pk=operation_id, extremes__isnull=True)
            num_counted += row.update(extremes=measured(operation_id))
    return num_counted
