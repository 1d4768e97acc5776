"""The metric points of an operation that count: those of abandoned steps are left out."""

from collections.abc import Iterator
from typing import NamedTuple

from trainops.client.api import Api
from trainops.client.problems import ExitCode, Problem
from trainops.client.responses import Attempt, Curves

PAGE = 20_000  # points


class Point(NamedTuple):
    """A measured value; `at` is an ISO time."""

    name: str
    step: int
    value: float
    at: str


class PointsChanged(Problem):
    """A resume retired points while they were read."""

    def __init__(self, operation_id: str) -> None:
        text = f"{operation_id} was resumed while its points were read; try again"
        super().__init__(text, ExitCode.CONFLICT)


def pages(api: Api, operation_id: str) -> Iterator[list[Point]]:
    """Yield the points in the order of their measurement.

    Raises PointsChanged after the last page if a resume began meanwhile.
    """
    begun, last_id = _newest_attempt(api, operation_id), 0
    while True:
        curves: Curves = api.get(f"operations/{operation_id}/metrics", after_id=last_id, first=PAGE)
        if not curves["series"]:
            break
        last_id = curves["last_id"]
        yield list(_standing(curves))
    if _newest_attempt(api, operation_id) != begun:
        raise PointsChanged(operation_id)


def _newest_attempt(api: Api, operation_id: str) -> tuple[int, int | None] | None:
    """Return its number and where it started; its start retires points of earlier ones."""
    attempts: list[Attempt] = api.rows(f"operations/{operation_id}/attempts", limit=1).rows
    return (attempts[0]["number"], attempts[0]["from_step"]) if attempts else None


def _standing(curves: Curves) -> Iterator[Point]:
    for curve in curves["series"]:
        if curve["retired_by"] is None:
            columns = zip(curve["steps"], curve["values"], curve["at"], strict=True)
            for step, value, at in columns:
                yield Point(curve["name"], step, float(value), at)


def by_step(points: Iterator[list[Point]]) -> list[dict[str, float]]:
    """Return a row for each step, in order: `step`, and the value of each metric measured there.

    A metric that is named `step` itself is `metric.step`, as in queries.
    """
    rows: dict[int, dict[str, float]] = {}
    for page in points:
        for point in page:
            name = "metric.step" if point.name == "step" else point.name
            rows.setdefault(point.step, {"step": point.step})[name] = point.value
    return [rows[step] for step in sorted(rows)]
