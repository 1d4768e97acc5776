"""Queries for metric points and logs, in pages of bounded size."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack, cast

from django.db.models import Count, Exists, Max, Min, OuterRef, QuerySet

from apps.operations.id_order import between, newest_first, oldest_first
from apps.operations.models import LogChunk, MetricPoint, Operation, PackedPoints
from apps.operations.points.thinned_points import thinned, width_of
from trainops.media.names import NO_METRICS

if TYPE_CHECKING:
    from apps.operations.points.packed_points import Key, Points

MAX_LOG_CHARS = 256 * 1024
LOG_PAGE = 200
MIN_POINTS = 10  # of a thinned curve, about
MAX_POINTS_AFTER = 2000  # of one operation that are not thinned
MAX_POINTS_OF_SEVERAL = 200_000  # of the curves of several operations together, about
NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class PointSelection(TypedDict, total=False):
    """Which points of an operation are read; what is left out selects all. See `selected`."""

    names: Sequence[str]
    attempt: int | None
    after_step: int | None  # steps after this one
    to_step: int | None


class Curve(TypedDict):
    """The points of one metric in one attempt, as columns of equal length."""

    name: str
    attempt: int
    retired_by: int | None  # the attempt that measured these steps again
    steps: list[int]
    values: list[float | str | None]  # text where not finite
    at: list[datetime]


@dataclass(frozen=True, slots=True)
class Curves:
    """Curves of an operation: one for each metric, attempt, and attempt that retired it.

    `last_id` is what to ask on from; `is_thinned` tells that some points are left out.
    """

    series: list[Curve]
    last_id: int
    is_thinned: bool


def curves(
    operation_id: str,
    *,
    names: Iterable[str] = (),
    attempt: int | None = None,
    after_id: int = 0,
    after_step: int | None = None,
    to_step: int | None = None,
    max_points: int = 2000,
    first: int | None = None,
) -> Curves:
    """Return measured points in order of step, at most about `max_points` of each curve.

    first: return only that many points in all, those with the lowest ids, and thin none.

    Thinning keeps of each stretch of steps the lowest, the highest and a non-finite point, and of
    each curve the newest: no spike is lost, and no point is shown that was not measured. Stretches
    begin at multiples of their width. Packed points give the same curves in less time.
    """
    selection: PointSelection = {
        "names": list(names),
        "attempt": attempt,
        "after_step": after_step,
        "to_step": to_step,
    }
    if first is not None:
        oldest = _Plain(operation_id, selection, after_id).rows(first)
        return Curves(_series(oldest), oldest[-1][-1] if oldest else after_id, False)
    if not after_id and (newest := PackedPoints.newest_id(operation_id)):
        return Packed(operation_id, newest, selection).curves(max_points)
    return _Plain(operation_id, selection, after_id).curves(max_points)


def curves_after(places: Collection[tuple[str, int]]) -> dict[tuple[str, int], Curves]:
    """Return the curves of each operation after a point's id, all of them read in one query.

    Places with more than MAX_POINTS_AFTER points are left out; all places, if there are more than
    MAX_POINTS_OF_SEVERAL points together.
    """
    first: dict[str, int] = {}
    for key, point_id in places:
        first[key] = min(point_id, first.get(key, point_id))
    if not first:
        return {}
    after = [between(point_id, operation_id=key) for key, point_id in first.items()]
    points = MetricPoint.objects.filter(reduce(or_, after)).order_by("id")
    rows: dict[str, list[_Row]] = {key: [] for key in first}
    read = points.values_list(*_COLUMNS, "operation_id")[: MAX_POINTS_OF_SEVERAL + 1]
    for *row, key in read:
        rows[key].append(cast(_Row, tuple(row)))
    if len(read) > MAX_POINTS_OF_SEVERAL:
        return {}
    found = {(key, after): [row for row in rows[key] if row[7] > after] for key, after in places}
    return {
        place: Curves(_series(each), each[-1][7] if each else place[1], False)
        for place, each in found.items()
        if len(each) <= MAX_POINTS_AFTER
    }


def of_metrics(points: QuerySet[MetricPoint]) -> QuerySet[MetricPoint]:
    """Return the points that are metrics of their operation; see is_metric."""
    for beginning in NO_METRICS:
        points = points.exclude(name__startswith=beginning)
    return points


def measured(operation_ids: Collection[str]) -> set[str]:
    """Return the operations that have any point; one query, which finds one point of each."""
    if not operation_ids:
        return set()
    mine = OuterRef("pk")
    has_points = Exists(MetricPoint.objects.filter(operation_id=mine))
    has_packed = Exists(PackedPoints.objects.filter(operation_id=mine))
    found = Operation.objects.filter(has_points | has_packed, pk__in=operation_ids)
    return set(found.order_by().values_list("pk", flat=True))


def curves_of_several(
    operation_ids: Iterable[str], *, max_points: int = 2000, **selection: Unpack[PointSelection]
) -> dict[str, Curves]:
    """Return `curves_of_selections` with the same selection for each operation."""
    return curves_of_selections(dict.fromkeys(operation_ids, selection), max_points=max_points)


def curves_of_selections(
    selections: Mapping[str, PointSelection],
    *,
    max_points: int = 2000,
    max_of_several: int | None = None,
) -> dict[str, Curves]:
    """Return the curves of each operation, with the points that its selection names.

    They are thinned as by `curves`, and further where they would have more than about
    `max_of_several` points together (default: MAX_POINTS_OF_SEVERAL); each keeps at least about
    MIN_POINTS.
    """
    sources = {each: _source(each, selection) for each, selection in selections.items()}
    num_curves = sum(len(each.extents) for each in sources.values())
    share = (max_of_several or MAX_POINTS_OF_SEVERAL) // max(1, num_curves)
    allowed = min(max_points, max(MIN_POINTS, share))
    return {each: source.curves(allowed) for each, source in sources.items()}


def selected(
    operation_id: str,
    *,
    names: Sequence[str] = (),
    attempt: int | None = None,
    after_step: int | None = None,
    to_step: int | None = None,
) -> QuerySet[MetricPoint]:
    """Return points of an operation; nothing given selects all."""
    selection: PointSelection = {
        "names": names, "attempt": attempt, "after_step": after_step, "to_step": to_step,
    }  # fmt: skip
    return MetricPoint.objects.filter(operation_id=operation_id, **_conditions(selection))


def _conditions(selection: PointSelection) -> dict[str, Any]:
    wanted = {
        "name__in": selection.get("names") or None,
        "attempt": selection.get("attempt"),
        "step__gt": selection.get("after_step"),
        "step__lte": selection.get("to_step"),
    }
    return {name: value for name, value in wanted.items() if value is not None}


_Row: TypeAlias = tuple[str, int, int | None, int, float | None, str, datetime, int]
_Key: TypeAlias = tuple[str, int, int | None]  # the first three, which a curve's points share


_COLUMNS = ("name", "attempt", "retired_by", "step", "value", "not_finite", "at", "id")


def _rows(points: QuerySet[MetricPoint]) -> list[_Row]:
    return list(points.values_list(*_COLUMNS))


class CurveKey(TypedDict):
    """What the points of one curve share."""

    name: str
    attempt: int
    retired_by: int | None


class CurveExtent(CurveKey):
    """The points of one curve: how many, and their first and last step."""

    n: int
    low: int
    high: int
    last_id: int


class _Plain:
    """Points that are read one by one; the database thins them."""

    def __init__(self, operation_id: str, selection: PointSelection, after_id: int = 0) -> None:
        self.after_id = after_id
        self.points = selected(operation_id, **selection).filter(id__gt=after_id)
        self._by_id = self.points.order_by("id")
        if not _conditions(selection):
            self._by_id = oldest_first(
                MetricPoint.objects.all(), after_id, operation_id=operation_id
            )

    def rows(self, number: int) -> list[_Row]:
        """Return the oldest points, at most that many."""
        return _rows(self._by_id[:number])

    @cached_property
    def extents(self) -> list[CurveExtent]:
        return _extents(self.points)

    def curves(self, max_points: int) -> Curves:
        rows = self.rows(max_points + 1)
        if len(rows) <= max_points:  # in most cases
            return Curves(
                _series(rows), max((row[-1] for row in rows), default=self.after_id), False
            )
        long = [each for each in self.extents if each["n"] > max_points]
        shown = self.points
        for extent in long:
            shown = shown.exclude(**_key(extent))
        rows = _rows(shown)
        for extent in long:
            span = {extent["name"]: (extent["low"], extent["high"])}
            rows += _rows(thinned(self.points.filter(**_key(extent)), span, max_points))
        return Curves(_series(rows), max(each["last_id"] for each in self.extents), bool(long))


class Packed:
    """Points of an operation of which many are packed, up to the id `newest`."""

    def __init__(
        self, operation_id: str, newest: int, selection: PointSelection | None = None
    ) -> None:
        self.operation_id, self.newest, self.selection = operation_id, newest, selection or {}
        self._look()

    def _look(self) -> None:
        from apps.operations.points import packed_points  # noqa: PLC0415 - loads NumPy

        self.found = packed_points.long_curves(self.operation_id, self.newest, **self.selection)
        self.extents: list[CurveExtent] = [
            {
                "name": each.key.name,
                "attempt": each.key.attempt,
                "retired_by": each.key.retired_by,
                "n": each.num_points,
                "low": each.low,
                "high": each.high,
                "last_id": each.last_id,
            }
            for each in self.found
        ]

    def curves(self, max_points: int) -> Curves:
        from apps.operations.points import packed_points  # noqa: PLC0415 - loads NumPy

        points, is_thinned = self.points(max_points)
        series: list[Curve] = [
            {
                "name": key.name,
                "attempt": key.attempt,
                "retired_by": key.retired_by,
                **packed_points.columns(points[key]),
                "at": packed_points.times(points[key]),
            }
            for key in sorted(points, key=_order)
        ]
        last_id = max((each["last_id"] for each in self.extents), default=0)
        return Curves(series, last_id, is_thinned)

    def points(self, max_points: int) -> "tuple[dict[Key, Points], bool]":
        """Return the points of each curve by step, and whether some are left out."""
        from apps.operations.points import packed_points  # noqa: PLC0415 - loads NumPy

        widths = {
            (each["name"], each["attempt"], each["retired_by"]): width_of(
                each["low"], each["high"], max_points
            )
            for each in self.extents
            if each["n"] > max_points
        }
        try:
            return packed_points.read(self.operation_id, self.found, widths), bool(widths)
        except packed_points.PacksChanged:  # a resume, or further points
            self._look()
            return self.points(max_points)


def _source(operation_id: str, selection: PointSelection) -> _Plain | Packed:
    if newest := PackedPoints.newest_id(operation_id):
        return Packed(operation_id, newest, selection)
    return _Plain(operation_id, selection)


def _key(extent: CurveExtent) -> CurveKey:
    return {
        "name": extent["name"],
        "attempt": extent["attempt"],
        "retired_by": extent["retired_by"],
    }


def _extents(points: QuerySet[MetricPoint]) -> list[CurveExtent]:
    grouped = points.order_by().values("name", "attempt", "retired_by")
    extents = grouped.annotate(n=Count("id"), low=Min("step"), high=Max("step"), last_id=Max("id"))
    return list(extents)


def _series(rows: Iterable[_Row]) -> list[Curve]:
    grouped: dict[_Key, list[_Row]] = defaultdict(list)
    for row in rows:
        grouped[row[:3]].append(row)
    series: list[Curve] = []
    for name, attempt, retired_by in sorted(grouped, key=_order):
        points = grouped[name, attempt, retired_by]
        points.sort(key=lambda row: row[3])
        series.append(
            {
                "name": name,
                "attempt": attempt,
                "retired_by": retired_by,
                "steps": [row[3] for row in points],
                "values": [row[4] if not row[5] else NOT_FINITE.get(row[5]) for row in points],
                "at": [row[6] for row in points],
            }
        )
    return series


def _order(key: _Key) -> tuple[str, int, int]:
    name, attempt, retired_by = key
    return name, attempt, retired_by or 0


class Chunk(TypedDict):
    """Some output of an attempt, as it came."""

    id: int
    attempt: int
    at: datetime
    text: str


@dataclass(frozen=True, slots=True)
class Log:
    """Some output, oldest first. `last_id` is what to ask on from."""

    chunks: list[Chunk]
    last_id: int
    has_more: bool  # after the last chunk (`log_after`), or before the first (`log_tail`)


def log_after(operation_id: str, *, after_id: int, attempt: int | None = None) -> Log:
    """Return what was printed after the chunk `after_id`, at most 256 KiB of it at a time."""
    chunks: list[Chunk] = []
    num_chars = 0
    following = oldest_first(LogChunk.objects.all(), after_id, **log_keys(operation_id, attempt))
    for chunk in following[:1000].values("id", "attempt", "at", "text"):
        if num_chars > MAX_LOG_CHARS:
            return Log(chunks, chunks[-1]["id"], has_more=True)
        chunks.append(chunk)
        num_chars += len(chunk["text"])
    return Log(chunks, chunks[-1]["id"] if chunks else after_id, has_more=len(chunks) == 1000)


def log_tail(operation_id: str, *, num_lines: int, attempt: int | None = None) -> Log:
    """Return the last `num_lines` lines, and little more than 256 KiB."""
    chunks: list[Chunk] = []
    missing, num_chars = num_lines, 0
    latest = newest_first(LogChunk.objects.all(), **log_keys(operation_id, attempt))
    backwards = latest.values("id", "attempt", "at", "text")
    for chunk in backwards.iterator(chunk_size=50):
        if missing <= 0 or num_chars > MAX_LOG_CHARS:
            return Log(chunks[::-1], chunks[0]["id"], has_more=True)
        lines = chunk["text"].splitlines(keepends=True)
        chunks.append(chunk | {"text": "".join(lines[-missing:])})
        missing -= len(lines)
        num_chars += len(chunk["text"])
    return Log(chunks[::-1], chunks[0]["id"] if chunks else 0, has_more=missing < 0)


def newest_of_log(operation_id: str) -> int:
    """Return the id of the newest chunk of the log; 0: there is none."""
    newest = newest_first(LogChunk.objects.all(), operation_id=operation_id)
    return newest.values_list("id", flat=True).first() or 0


def log_chunks(
    operation_id: str, attempt: int | None = None, *, has_headings: bool = False
) -> Iterable[str]:
    """Yield everything that is kept of the log, piece by piece; with a heading for each attempt.

    A query for every LOG_PAGE of them, not one cursor: another thread may request each.
    """
    keys = log_keys(operation_id, attempt)
    pieces = LogChunk.objects.values_list("id", "attempt", "text")
    last_id, current = 0, None
    while page := [*oldest_first(pieces, last_id, **keys)[:LOG_PAGE]]:
        last_id = page[-1][0]
        for _, number, text in page:
            if has_headings and number != current:
                yield f"--- attempt {number} ---\n"
            current = number
            yield text


def log_keys(operation_id: str, attempt: int | None) -> dict[str, Any]:
    """Return the columns before the id in the index of a log, or of that of one attempt."""
    own = {} if attempt is None else {"attempt": attempt}
    return {"operation_id": operation_id, **own}
