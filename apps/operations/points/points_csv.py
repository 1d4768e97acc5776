"""The metric points of an operation as CSV, all of them, in pages of bounded size."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from django.db.models import Q, QuerySet

from apps.operations.models import MetricPoint
from apps.operations.points.metric_queries import NOT_FINITE, selected
from trainops.text import csv_cell

PAGE = 5000
COLUMNS = ("name", "step", "attempt", "value", "at", "retired_by")


def pages(
    operation_id: str,
    *,
    name: Sequence[str] = (),
    attempt: int | None = None,
    after_step: int | None = None,
    to_step: int | None = None,
) -> Iterator[str]:
    """Yield a line of column names, and the points by metric and step; by default all metrics.

    A name that a spreadsheet would take for a formula begins with an apostrophe. A value that is
    not finite is NaN, Infinity or -Infinity; `retired_by` is empty for points that
    count. A query for every page, not one cursor: another thread may request each.
    """
    yield _lines([COLUMNS])
    points = selected(operation_id, attempt=attempt, after_step=after_step, to_step=to_step)
    yield from _pages_of_names(points, name)


def pages_of_several(operation_ids: Iterable[str], name: Sequence[str] = ()) -> Iterator[str]:
    """Yield the points of operations one after another, as `pages`, with the id in each row."""
    yield _lines([("operation_id", *COLUMNS)])
    for operation_id in operation_ids:
        yield from _pages_of_names(selected(operation_id), name, (operation_id,))


def _pages_of_names(
    points: QuerySet[MetricPoint], name: Sequence[str], first: tuple[str, ...] = ()
) -> Iterator[str]:
    """Yield the points of each of the metrics, by default of all, after the cells `first`."""
    for each in name or points.order_by("name").values_list("name", flat=True).distinct():
        yield from _pages_of(points.filter(name=each), first)


def _pages_of(points: QuerySet[MetricPoint], first: tuple[str, ...]) -> Iterator[str]:
    rows = points.order_by("step", "attempt").values_list(*COLUMNS, "not_finite")
    following = rows
    while page := list(following[:PAGE]):
        yield _lines(
            (
                *first,
                csv_cell(name),
                step,
                attempt,
                NOT_FINITE.get(not_finite, value),
                at.isoformat(),
                retired_by,
            )
            for name, step, attempt, value, at, retired_by, not_finite in page
        )
        _, step, attempt, *_ = page[-1]
        following = rows.filter(Q(step__gt=step) | Q(step=step, attempt__gt=attempt))


def _lines(rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
