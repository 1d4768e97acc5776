"""The curves of several operations, in the form that static/js/compared_charts.js reads them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NotRequired, TypedDict

from rest_framework import serializers

from apps.dashboard import points
from apps.dashboard.points import Points
from apps.operations.attempts import branches
from apps.operations.comparisons.selection import MAX_OPERATIONS
from apps.operations.filters import ManyField
from apps.operations.points import metric_queries
from apps.operations.points.metric_queries import Curves, PointSelection
from trainops.http.numbers import whole_number
from trainops.http.serializers import StrictSerializer

MAX_POINTS: Final = 1000  # of a curve
MAX_POINTS_OF_ALL: Final = 60_000  # of all curves together, about
MAX_POINTS_OF_WINDOWS: Final = 20_000  # of the curves of a zoomed window together, about
MAX_ID: Final = 10**18


class OperationCurves(TypedDict):
    """An operation in the legend, its new points, and which attempts' points stand."""

    operation_id: str
    name: str
    note: str  # tells operations of one name apart
    unit: str
    tint: NotRequired[int]
    points: Points
    standing: dict[int, int | None]


class LegendEntry(TypedDict):
    """What the legend shows of an operation."""

    operation_id: str
    name: str
    note: str
    unit: str
    tint: NotRequired[int]  # its colour; by default one that no other has


def positions(text: str) -> dict[str, int]:
    """Return the newest point that a page has of each operation: `ID:POINT,ID:POINT`."""
    pairs = (each.partition(":") for each in text.split(","))
    return {key: whole_number(number, 0, MAX_ID) or 0 for key, _, number in pairs if key}


def of(entries: Sequence[LegendEntry], after: Mapping[str, int]) -> list[OperationCurves]:
    """Return the operations with what they measured after the points that `after` names.

    Operations that it does not name are returned with all their points, long curves thinned.
    """
    ids = [each["operation_id"] for each in entries]
    found = _new_points({each: after.get(each, 0) for each in ids})
    standing = branches.standing_of_several(ids)
    return [
        {
            **each,
            "points": points.columns(found[each["operation_id"]]),
            "standing": standing[each["operation_id"]],
        }
        for each in entries
    ]


def _new_points(after: Mapping[str, int]) -> dict[str, Curves]:
    unknown = [each for each, last in after.items() if not last]
    measured = metric_queries.measured(unknown)
    whole: dict[str, PointSelection] = {each: {} for each in unknown if each in measured}
    found = dict.fromkeys(unknown, Curves([], 0, False))
    found |= metric_queries.curves_of_selections(
        whole, max_points=MAX_POINTS, max_of_several=MAX_POINTS_OF_ALL
    )
    known = {(each, last) for each, last in after.items() if last}
    found |= {each: new for (each, _), new in metric_queries.curves_after(known).items()}
    for each, last in known:
        if each not in found:  # too many for one query
            found[each] = metric_queries.curves(each, after_id=last, max_points=MAX_POINTS)
    return found


def position_of(operations: Sequence[OperationCurves]) -> str:
    """Return what `positions` reads, for a page that has these."""
    return ",".join(f"{each['operation_id']}:{each['points']['last']}" for each in operations)


class PointsFileQuery(StrictSerializer):
    ids = ManyField(help_text=f"1 to {MAX_OPERATIONS} operations, separated by commas.")
    name = ManyField(required=False, help_text="Metrics, separated by commas; by default all.")

    def validate_ids(self, ids: list[str]) -> list[str]:
        return _few([each for each in ids if each])


class WindowsQuery(StrictSerializer):
    windows = ManyField(
        help_text="Windows of steps, `ID:FIRST:LAST`, separated by commas; no LAST: to the end."
    )
    name = ManyField(help_text="Metrics, separated by commas.")

    def validate_windows(self, windows: list[str]) -> dict[str, tuple[int, int | None]]:
        """Return the first and the last step of each operation."""
        found = dict(map(_window, _few(windows)))
        _few(list(found))
        return found


def windows(
    selected: Mapping[str, tuple[int, int | None]], names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return the points of some metrics in a window of steps of each operation."""
    selections: dict[str, PointSelection] = {
        each: {
            "names": names,
            "after_step": first - 1 if first else None,
            "to_step": last,
        }
        for each, (first, last) in selected.items()
    }
    found = metric_queries.curves_of_selections(
        selections, max_points=2 * MAX_POINTS, max_of_several=MAX_POINTS_OF_WINDOWS
    )
    return {each: {"series": points.columns(curves)["series"]} for each, curves in found.items()}


def _window(text: str) -> tuple[str, tuple[int, int | None]]:
    operation_id, first_text, last_text = [*text.split(":"), "", ""][:3]
    first = whole_number(first_text, 0, MAX_ID)
    last = whole_number(last_text, 0, MAX_ID) if last_text else None
    if text.count(":") != 2 or first is None or (last_text and last is None):
        problem = f"got {text[:80]!r}; allowed: ID:FIRST:LAST, with whole numbers of steps"
        raise serializers.ValidationError(problem)
    return operation_id, (first, last)


def _few(ids: list[str]) -> list[str]:
    """Return the different ones, in their order."""
    few = list(dict.fromkeys(ids))
    if not 1 <= len(few) <= MAX_OPERATIONS:
        problem = f"got {len(few)}; allowed: 1 to {MAX_OPERATIONS} operations"
        raise serializers.ValidationError(problem)
    return few
