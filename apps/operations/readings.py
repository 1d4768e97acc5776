"""What an operation measured and printed, in portions that a page or a terminal can hold."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, F, Max, Min, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from apps.operations.models import LogChunk, MetricPoint

MAX_LOG_CHARS = 256 * 1024
LOG_PAGE = 200
NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


@dataclass(frozen=True, slots=True)
class Curves:
    """Curves of an operation: one for each metric, attempt, and attempt that retired it.

    Each holds columns of equal length: `steps`, `values` (text where not finite), `at`.
    `last_id` is what to ask on from; `is_thinned` tells that some points are left out.
    """

    series: list[dict[str, Any]]
    last_id: int
    is_thinned: bool


def curves(
    operation_id: str,
    *,
    names: Iterable[str] = (),
    attempt: int | None = None,
    after_id: int = 0,
    after_step: int | None = None,
    max_points: int = 2000,
) -> Curves:
    """Return measured points in order of step, at most about `max_points` of each curve.

    Thinning keeps of each stretch of steps the lowest, the highest and a non-finite point, and of
    each curve the newest: no spike is lost, and no point is shown that was not measured.
    """
    points = MetricPoint.objects.filter(operation_id=operation_id, id__gt=after_id)
    if names := list(names):
        points = points.filter(name__in=names)
    if attempt is not None:
        points = points.filter(attempt=attempt)
    if after_step is not None:
        points = points.filter(step__gt=after_step)
    extents = _extents(points)
    long = [each for each in extents if each["n"] > max_points]
    shown = points
    for extent in long:
        shown = shown.exclude(name=extent["name"], attempt=extent["attempt"])
    rows = list(shown.values_list(*_COLUMNS))
    for extent in long:
        rows += _thinned(points, extent, max_points)
    last_id = max((each["last_id"] for each in extents), default=after_id)
    return Curves(_series(rows), last_id, bool(long))


_COLUMNS = ("name", "attempt", "retired_by", "step", "value", "not_finite", "at")


def _extents(points: QuerySet[MetricPoint]) -> list[dict[str, Any]]:
    grouped = points.order_by().values("name", "attempt")
    return [
        dict(each)
        for each in grouped.annotate(
            n=Count("id"), low=Min("step"), high=Max("step"), last_id=Max("id")
        )
    ]


def _thinned(
    points: QuerySet[MetricPoint], extent: Mapping[str, Any], max_points: int
) -> list[Any]:
    low, high = extent["low"], extent["high"]
    width = max(1, math.ceil((high - low + 1) / max(1, max_points // 2)))
    stretch = (F("step") - low) / width  # whole numbers: every database rounds down
    ranked = points.filter(name=extent["name"], attempt=extent["attempt"]).annotate(
        lowest=_rank(stretch, F("value").asc(nulls_first=True)),
        highest=_rank(stretch, F("value").desc(nulls_last=True)),
    )
    kept = ranked.filter(Q(lowest=1) | Q(highest=1) | Q(step=high))
    return list(kept.values_list(*_COLUMNS))


def _rank(stretch: Any, order: Any) -> Window:
    return Window(RowNumber(), partition_by=[stretch], order_by=[order, F("step").asc()])


def _series(rows: list[Any]) -> list[dict[str, Any]]:
    grouped: dict[tuple[str, int, int | None], list[Any]] = defaultdict(list)
    for row in rows:
        grouped[row[:3]].append(row)
    series = []
    for (name, attempt, retired_by), points in sorted(grouped.items(), key=_order):
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


def _order(curve: tuple[tuple[str, int, int | None], Any]) -> tuple[str, int, int]:
    (name, attempt, retired_by), _ = curve
    return name, attempt, retired_by or 0


@dataclass(frozen=True, slots=True)
class Log:
    """Some output, oldest first. `last_id` is what to ask on from."""

    chunks: list[dict[str, Any]]
    last_id: int
    has_more: bool  # after the last chunk (`log_after`), or before the first (`log_tail`)


def log_after(operation_id: str, *, after_id: int, attempt: int | None = None) -> Log:
    """Return what was printed after the chunk `after_id`, at most 256 KiB of it at a time."""
    chunks: list[dict[str, Any]] = []
    num_chars = 0
    following = _log(operation_id, attempt).filter(id__gt=after_id).order_by("id")
    for chunk in following[:1000].values(*LOG_FIELDS):
        if num_chars > MAX_LOG_CHARS:
            return Log(chunks, chunks[-1]["id"], has_more=True)
        chunks.append(chunk)
        num_chars += len(chunk["text"])
    return Log(chunks, chunks[-1]["id"] if chunks else after_id, has_more=len(chunks) == 1000)


def log_tail(operation_id: str, *, num_lines: int, attempt: int | None = None) -> Log:
    """Return the last `num_lines` lines, and little more than 256 KiB."""
    chunks: list[dict[str, Any]] = []
    missing, num_chars = num_lines, 0
    backwards = _log(operation_id, attempt).order_by("-id").values(*LOG_FIELDS)
    for chunk in backwards.iterator(chunk_size=50):
        if missing <= 0 or num_chars > MAX_LOG_CHARS:
            return Log(chunks[::-1], chunks[0]["id"], has_more=True)
        lines = chunk["text"].splitlines(keepends=True)
        chunks.append(chunk | {"text": "".join(lines[-missing:])})
        missing -= len(lines)
        num_chars += len(chunk["text"])
    return Log(chunks[::-1], chunks[0]["id"] if chunks else 0, has_more=missing < 0)


LOG_FIELDS = ("id", "attempt", "at", "text")


def log_chunks(operation_id: str, attempt: int | None = None) -> Iterable[str]:
    """Yield everything that is kept of the log, piece by piece.

    A query for every LOG_PAGE of them, not one cursor: each may be asked for by another thread.
    """
    pieces = _log(operation_id, attempt).order_by("id").values_list("id", "text")
    last_id = 0
    while page := [*pieces.filter(id__gt=last_id)[:LOG_PAGE]]:
        last_id = page[-1][0]
        yield "".join(text for _, text in page)


def _log(operation_id: str, attempt: int | None) -> QuerySet[LogChunk]:
    chunks = LogChunk.objects.filter(operation_id=operation_id)
    return chunks if attempt is None else chunks.filter(attempt=attempt)
