"""The metric points of several operations, thinned to a number of points for all of them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from django.db.models import Count, Max, QuerySet

from apps.operations.models import MetricPoint, PackedPoints
from apps.operations.points.metric_queries import NOT_FINITE, Packed, of_metrics
from apps.operations.points.thinned_points import thinned
from trainops.media.names import is_metric

if TYPE_CHECKING:
    from apps.operations.points.packed_points import Key, Points

MAX_METRICS = 40
MAX_POINTS = 60_000  # of all curves together, about
MIN_POINTS_OF_CURVE, MAX_POINTS_OF_CURVE = 100, 1000
AXIS = "epoch"  # a metric that charts use as an axis


class ComparedCurve(TypedDict):
    """The points of one metric of one operation, as columns of equal length, by step."""

    steps: list[int]
    values: list[float | str | None]  # text where not finite


class MetricCurves(TypedDict):
    """The curves of one metric by operation id; operations without points have none."""

    name: str
    series: dict[str, ComparedCurve]


@dataclass(frozen=True, slots=True)
class ComparedCurves:
    """Curves by metric. `left_out`: metrics beyond MAX_METRICS; is_thinned: points are left out."""

    metrics: list[MetricCurves]
    left_out: list[str]
    is_thinned: bool


class _Extent(TypedDict):
    """How many points a metric of an operation has, and their last step."""

    operation_id: str
    name: str
    n: int
    high: int


def of(ids: Sequence[str], *, max_points: int = MAX_POINTS) -> ComparedCurves:
    """Return the points that no resume has retired, of all metrics but speed and GPU.

    The curves have at most about `max_points` points together, but at least 100 each. Thinning
    keeps of each stretch of steps the lowest, the highest and a non-finite point, and of each
    curve the newest. There are two queries, and one more for each operation with long curves:
    each has to end before the statement timeout.
    """
    packed = _packed(ids)
    plain = [each for each in ids if each not in packed]
    points = MetricPoint.objects.filter(operation_id__in=plain, retired_by=None)
    points = of_metrics(points.exclude(name=AXIS))
    extents = _extents(points)
    of_packed = _extents_of_packed(packed)
    names, left_out = _chosen([*extents, *of_packed])
    shown = [each for each in extents if each["name"] in names]
    num_curves = len(shown) + sum(each["name"] in names for each in of_packed)
    allowed = max_points // max(1, num_curves)
    allowed = min(MAX_POINTS_OF_CURVE, max(MIN_POINTS_OF_CURVE, allowed))
    long: dict[str, list[_Extent]] = defaultdict(list)
    for each in shown:
        if each["n"] > allowed:
            long[each["operation_id"]].append(each)
    rows = _rows(_short(points.filter(name__in=names), long))
    for operation_id, mine in long.items():
        spans = {each["name"]: (0, each["high"]) for each in mine}
        rows += _rows(thinned(points.filter(operation_id=operation_id), spans, allowed))
    found = _by_curve(rows)
    is_thinned = bool(long)
    for operation_id, source in packed.items():
        curves, is_shortened = source.points(allowed)
        is_thinned |= is_shortened
        for name, curve in _joined(curves).items():
            found[name, operation_id] = curve
    return ComparedCurves(_by_metric(names, ids, found), left_out, is_thinned)


def _packed(ids: Iterable[str]) -> dict[str, Packed]:
    """Return the operations whose points are packed."""
    packs = PackedPoints.objects.filter(operation_id__in=ids).order_by()
    newest = packs.values_list("operation_id").annotate(Max("last_id"))
    return {operation_id: Packed(operation_id, last_id) for operation_id, last_id in newest}


def _is_compared(name: str, retired_by: int | None) -> bool:
    return retired_by is None and name != AXIS and is_metric(name)


def _extents_of_packed(packed: Mapping[str, Packed]) -> list[_Extent]:
    """Return one for each metric of an operation, whatever attempts measured it."""
    found: dict[tuple[str, str], _Extent] = {}
    for operation_id, source in packed.items():
        for each in source.extents:
            if not _is_compared(name := each["name"], each["retired_by"]):
                continue
            extent: _Extent = {"operation_id": operation_id, "name": name, "n": 0, "high": 0}
            extent = found.setdefault((operation_id, name), extent)
            extent["n"] += each["n"]
            extent["high"] = max(extent["high"], each["high"])
    return list(found.values())


def _joined(curves: "Mapping[Key, Points]") -> dict[str, ComparedCurve]:
    """Return the curve of each metric that is compared, whatever attempts measured it."""
    from apps.operations.points import packed_points, thinning  # noqa: PLC0415 - they load NumPy

    parts: dict[str, list[Points]] = defaultdict(list)
    for key, points in curves.items():
        if _is_compared(key.name, key.retired_by):
            parts[key.name].append(points)
    return {
        name: ComparedCurve(**packed_points.columns(thinning.joined(arrays)))
        for name, arrays in parts.items()
    }


def _extents(points: QuerySet[MetricPoint]) -> list[_Extent]:
    grouped = points.order_by().values("operation_id", "name")
    return list(grouped.annotate(n=Count("id"), high=Max("step")))


def _chosen(extents: Iterable[_Extent]) -> tuple[list[str], list[str]]:
    """Return the metrics that are compared, those of most operations first, and the others."""
    counts = Counter(each["name"] for each in extents)
    ordered = sorted(counts, key=lambda name: (-counts[name], name))
    return ordered[:MAX_METRICS], ordered[MAX_METRICS:]


def _short(
    points: QuerySet[MetricPoint], long: Mapping[str, Iterable[_Extent]]
) -> QuerySet[MetricPoint]:
    for operation_id, extents in long.items():
        names = [each["name"] for each in extents]
        points = points.exclude(operation_id=operation_id, name__in=names)
    return points


# The columns of a point: operation, metric, step, value, not_finite.
_Row = tuple[str, str, int, float | None, str]


def _rows(points: QuerySet[MetricPoint]) -> list[_Row]:
    columns = points.order_by("step").values_list(
        "operation_id", "name", "step", "value", "not_finite"
    )
    return list(columns)


# Curves by the names of metric and operation.
_Curves = dict[tuple[str, str], ComparedCurve]


def _by_curve(rows: Iterable[_Row]) -> _Curves:
    found: _Curves = defaultdict(lambda: {"steps": [], "values": []})
    for operation_id, name, step, value, not_finite in rows:
        curve = found[name, operation_id]
        curve["steps"].append(step)
        curve["values"].append(NOT_FINITE.get(not_finite) if not_finite else value)
    return found


def _by_metric(names: Sequence[str], ids: Sequence[str], found: _Curves) -> list[MetricCurves]:
    return [
        {"name": name, "series": {each: found[name, each] for each in ids if (name, each) in found}}
        for name in names
    ]
