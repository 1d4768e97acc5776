"""The curves of an operation for its charts, in the form that static/js/charts.js reads."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TypedDict

from apps.operations.points import metric_queries


class PointColumns(TypedDict):
    """Equally long lists: a value is None where it is not finite, a time is Unix time."""

    steps: list[int]
    values: list[float | None]
    times: list[float]


class Series(PointColumns):
    """The points of one metric in one attempt."""

    name: str
    attempt: int


class Points(TypedDict):
    """Points of an operation; `last` is the id to ask from next."""

    last: int
    is_thinned: bool  # some points are left out
    series: list[Series]


def after(operation_id: str, point_id: int) -> Points:
    """Return what was measured after a point's id, and the id to ask from next."""
    return columns(metric_queries.curves(operation_id, after_id=point_id))


def window(
    operation_id: str,
    *,
    name: Sequence[str] = (),
    attempt: int | None = None,
    after_step: int | None = None,
    to_step: int | None = None,
) -> Points:
    """Return the points of some metrics in a window of steps, all of them if they are few."""
    curves = metric_queries.curves(
        operation_id, names=name, attempt=attempt, after_step=after_step, to_step=to_step
    )
    return columns(curves)


def columns(curves: metric_queries.Curves) -> Points:
    """Return one entry per metric and attempt with equally long `steps`, `values` and `times`."""
    series: dict[tuple[str, int], PointColumns] = defaultdict(
        lambda: {"steps": [], "values": [], "times": []}
    )
    for curve in curves.series:
        own = series[curve["name"], curve["attempt"]]
        own["steps"] += curve["steps"]
        own["values"] += [None if isinstance(each, str) else each for each in curve["values"]]
        own["times"] += [round(each.timestamp(), 3) for each in curve["at"]]
    return {
        "last": curves.last_id,
        "is_thinned": curves.is_thinned,
        "series": [
            {"name": name, "attempt": attempt, **own} for (name, attempt), own in series.items()
        ],
    }
