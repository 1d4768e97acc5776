"""Newer and Older: pages by keyset, the same cost on the first page and the thousandth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import Q, QuerySet
from django.utils.dateparse import parse_datetime
from rest_framework.exceptions import ValidationError

from trainops.http.pagination import Cursor

ORDERING = "-created_at"
BEFORE_ALL = {"created_at": datetime(1970, 1, 1, tzinfo=UTC), "id": ""}


@dataclass(frozen=True, slots=True)
class Page:
    """Rows, newest first. A cursor is empty where there is nothing further on that side."""

    rows: Sequence[Mapping[str, Any]]
    newer: str
    older: str
    is_first: bool

    @property
    def top(self) -> str:
        """The cursor of the newest row here: what came after it is new."""
        return _cursor(self.rows[0] if self.rows else BEFORE_ALL, backwards=True)


def read(cursor: str) -> Cursor | None:
    """Return what a link said, or None for anything that is not one of ours: the first page."""
    try:
        known = Cursor.decode(cursor) if cursor else None
    except ValidationError:
        return None
    if known is None or not isinstance(known.value, str) or not isinstance(known.id, str):
        return None
    return known if _moment(known.value) and "\x00" not in known.id else None


def fetch(rows: QuerySet[Any, Mapping[str, Any]], cursor: str, size: int) -> Page:
    """Return one page. `rows` are values() that hold created_at and id."""
    edge = read(cursor)
    backwards = edge is not None and edge.backwards
    found = list(beyond(rows, edge).order_by(*_order(backwards))[: size + 1])
    has_more, found = len(found) > size, found[:size]
    if backwards:
        found.reverse()
    has_newer = has_more if backwards else edge is not None
    has_older = backwards or has_more
    return Page(
        rows=found,
        newer=_cursor(found[0], backwards=True) if found and has_newer else "",
        older=_cursor(found[-1], backwards=False) if found and has_older else "",
        is_first=not has_newer,
    )


def beyond(rows: QuerySet[Any, Any], edge: Cursor | None) -> QuerySet[Any, Any]:
    """Narrow to what lies beyond the edge, in its direction."""
    if edge is None:
        return rows
    side = "gt" if edge.backwards else "lt"
    at = _moment(edge.value)
    further = Q(**{f"created_at__{side}": at}) | Q(**{"created_at": at, f"pk__{side}": edge.id})
    return rows.filter(Q(**{f"created_at__{side}e": at}) & further)


def _order(backwards: bool) -> tuple[str, str]:
    return ("created_at", "pk") if backwards else ("-created_at", "-pk")


def _cursor(row: Mapping[str, Any], *, backwards: bool) -> str:
    return Cursor(ORDERING, backwards, row["created_at"].isoformat(), row["id"]).encode()


def _moment(value: str) -> datetime | None:
    """Return a time that every database can hold; None for anything else."""
    try:
        found = parse_datetime(value)
        return found.astimezone(UTC) if found and found.tzinfo else None
    except (ValueError, OverflowError):
        return None
