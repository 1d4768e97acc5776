"""Newer and Older: pages by keyset, and by position in lists that are not ordered by time.

The rows of a page by keyset cost the same on the first page and the thousandth. The number of rows
before it is counted, with the conditions of the query: its cost grows with that number.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypedDict, TypeVar

from django.db.models import Model, OrderBy, Q, QuerySet
from django.utils.dateparse import parse_datetime
from rest_framework.exceptions import ValidationError

from trainops.http.numbers import whole_number
from trainops.http.pagination import PageCursor

ORDERING = "-created_at"
MAX_POSITION = 1_000_000


class PlacedRow(TypedDict):
    """The columns by which rows are ordered."""

    created_at: datetime
    id: str


BEFORE_ALL: PlacedRow = {"created_at": datetime(1970, 1, 1, tzinfo=UTC), "id": ""}
M = TypeVar("M", bound=Model)
R = TypeVar("R", bound=PlacedRow)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CursorPage(Generic[R]):
    """Rows of a list. A cursor is empty where there is nothing further on that side.

    `newest`: of all pages, where the rows are in another order than newest first.
    """

    rows: Sequence[R]
    newer: str
    older: str
    is_first: bool
    before: int = 0  # number of rows on the pages before it
    newest: PlacedRow | None = None

    @property
    def last(self) -> int:
        """The position of its last row, from 1."""
        return self.before + len(self.rows)

    @property
    def is_whole(self) -> bool:
        """Whether there is no other page."""
        return not self.newer and not self.older

    @property
    def top(self) -> str:
        """The cursor of the newest row: what came after it is new."""
        return _cursor(self.newest or (self.rows[0] if self.rows else BEFORE_ALL), backwards=True)


def read(cursor: str) -> PageCursor | None:
    """Return what a link said, or None for anything that is not one of ours: the first page."""
    try:
        known = PageCursor.decode(cursor) if cursor else None
    except ValidationError:
        return None
    if known is None or not isinstance(known.value, str) or not isinstance(known.id, str):
        return None
    return known if _moment(known.value) and "\x00" not in known.id else None


def sliced(rows: QuerySet[M, R], by: Sequence[str | OrderBy], start: int, stop: int) -> Iterable[R]:
    return rows.order_by(*by)[start:stop]


def fetch(rows: QuerySet[M, R], cursor: str, size: int) -> CursorPage[R]:
    """Return one page. `rows` are values() that hold created_at and id."""
    read_rows: Callable[..., Iterable[R]] = sliced
    return fetch_read(rows, cursor, size, read_rows)


def fetch_read(
    rows: QuerySet[M, T], cursor: str, size: int, read_rows: Callable[..., Iterable[R]]
) -> CursorPage[R]:
    """Return one page. What `read_rows` returns are values() that hold created_at and id."""
    edge = read(cursor)
    backwards = edge is not None and edge.backwards
    found = list(read_rows(beyond(rows, edge), _order(backwards), 0, size + 1))
    has_more, found = len(found) > size, found[:size]
    if backwards:
        found.reverse()
    has_newer = has_more if backwards else edge is not None
    has_older = backwards or has_more
    before = _num_newer(rows, found[0]) if found and has_newer else 0
    return CursorPage(
        rows=found,
        newer=_cursor(found[0], backwards=True) if found and has_newer else "",
        older=_cursor(found[-1], backwards=False) if found and has_older else "",
        is_first=not has_newer,
        before=before,
    )


def _num_newer(rows: QuerySet[M, T], first: PlacedRow) -> int:
    edge = PageCursor(ORDERING, True, first["created_at"].isoformat(), first["id"])
    return beyond(rows.order_by(), edge).count()


def fetch_sorted(
    rows: QuerySet[M, T],
    cursor: str,
    size: int,
    by: Sequence[OrderBy],
    read_rows: Callable[..., Iterable[R]],
) -> CursorPage[R]:
    """Return one page in another order; the cursor is the number of rows before it."""
    start = whole_number(cursor, 0, MAX_POSITION) or 0
    found = list(read_rows(rows, by, start, start + size + 1))
    return CursorPage(
        rows=found[:size],
        newer=str(max(0, start - size)) if start else "",
        older=str(start + size) if len(found) > size else "",
        is_first=not start,
        before=start,
    )


def newest_of(rows: QuerySet[M, T]) -> PlacedRow | None:
    found: Any = rows.order_by(*_order(False)).values("created_at", "id")
    newest: PlacedRow | None = found.first()
    return newest


def beyond(rows: QuerySet[M, T], edge: PageCursor | None) -> QuerySet[M, T]:
    """Narrow to what lies beyond the edge, in its direction."""
    if edge is None:
        return rows
    side = "gt" if edge.backwards else "lt"
    at = _moment(edge.value)
    further = Q(**{f"created_at__{side}": at}) | Q(**{"created_at": at, f"pk__{side}": edge.id})
    return rows.filter(Q(**{f"created_at__{side}e": at}) & further)


def _order(backwards: bool) -> tuple[str, str]:
    return ("created_at", "pk") if backwards else ("-created_at", "-pk")


def _cursor(row: PlacedRow, *, backwards: bool) -> str:
    return PageCursor(ORDERING, backwards, row["created_at"].isoformat(), row["id"]).encode()


def _moment(value: str) -> datetime | None:
    """Return a time that every database can hold; None for anything else."""
    try:
        found = parse_datetime(value)
        return found.astimezone(UTC) if found and found.tzinfo else None
    except (ValueError, OverflowError):
        return None
