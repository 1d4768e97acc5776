"""The curves of an operation for its charts: columns of numbers, thinned without losing a spike."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from apps.operations.models import Attempt, MetricPoint

MAX_POINTS = 2000  # of one metric in one attempt; more cannot be told apart on a screen

Point = tuple[int, float | None, float]  # step, value (None: not finite), Unix time


def after(operation_id: str, point_id: int) -> dict[str, Any]:
    """Return what was measured after a point's id, and the id to ask from next.

    `series`: one entry per metric and attempt with equally long `steps`, `values`, `times`.
    """
    found = MetricPoint.objects.filter(operation_id=operation_id, id__gt=point_id).order_by("id")
    series: dict[tuple[str, int], list[Point]] = defaultdict(list)
    last = point_id
    columns = ("id", "name", "attempt", "step", "value", "at")
    for point, name, attempt, step, value, at in found.values_list(*columns).iterator(2000):
        last = point
        series[name, attempt].append((step, value, at.timestamp()))
    return {
        "last": last,
        "series": [
            _columns(name, attempt, thin(points, MAX_POINTS))
            for (name, attempt), points in series.items()
        ],
    }


def starts(attempts: Iterable[Attempt]) -> list[tuple[int, int]]:
    """Return (number, step it started from) of each attempt that got so far, oldest first.

    What older attempts measured after such a step is retired: the charts draw it dashed.
    """
    return sorted((a.number, a.from_step) for a in attempts if a.from_step is not None)


def thin(points: Sequence[Point], most: int) -> Sequence[Point]:
    """Keep at most `most` points: the ends, and of each stretch its lowest and highest value."""
    if len(points) <= most:
        return points
    stretch = (len(points) - 2) / ((most - 2) // 2)
    kept = [points[0]]
    start = 1.0
    while int(start) < len(points) - 1:
        bucket = points[int(start) : min(int(start + stretch), len(points) - 1)]
        kept.extend(_extremes(bucket))
        start += stretch
    return [*kept, points[-1]]


def _extremes(bucket: Sequence[Point]) -> list[Point]:
    finite = [point for point in bucket if point[1] is not None]
    if len(finite) < len(bucket):  # a NaN is never thinned away
        return [next(point for point in bucket if point[1] is None)]
    if not finite:
        return []
    lowest = min(finite, key=lambda point: point[1] or 0.0)
    highest = max(finite, key=lambda point: point[1] or 0.0)
    return sorted({lowest, highest})


def _columns(name: str, attempt: int, points: Sequence[Point]) -> dict[str, Any]:
    return {
        "name": name,
        "attempt": attempt,
        "steps": [step for step, _, _ in points],
        "values": [value for _, value, _ in points],
        "times": [round(at, 3) for _, _, at in points],
    }
