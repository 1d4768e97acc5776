"""The list of operations in groups: each with counts by state, and a link to its operations."""

import time
from dataclasses import dataclass

from django.core.cache import cache

from apps.dashboard.filters import COUNTS_SECONDS, TIMES_AS_LONG, Filters
from apps.operations.models import Event, Operation
from apps.operations.requests.access import Person
from apps.operations.search.groups import (
    COLUMNS,
    FoundGroups,
    GroupingError,
    OperationGroup,
    grouped,
)
from trainops.http.numbers import whole_number

PAGE_SIZE = 50
MAX_POSITION = 1_000_000
OFFERED = tuple(COLUMNS)  # further names can be typed


@dataclass(frozen=True, slots=True)
class Line:
    """A group with the query string of its operations as a list; empty if no query finds them."""

    group: OperationGroup
    title: str
    url: str


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Some groups. problem: why there are none, or empty; newer and older: cursors or empty."""

    lines: list[Line]
    problem: str = ""
    newer: str = ""
    older: str = ""
    before: int = 0

    @property
    def last(self) -> int:
        """The position of its last group, from 1."""
        return self.before + len(self.lines)


def page(wanted: Filters, user: Person, cursor: str) -> GroupPage:
    """Return a page of groups; the cursor is the number of groups before it."""
    start = whole_number(cursor, 0, MAX_POSITION) or 0
    try:
        found = _found(wanted, user, start)
    except GroupingError as error:
        return GroupPage([], problem=error.message)
    return GroupPage(
        [_line(wanted, each) for each in found.rows],
        newer=str(max(0, start - PAGE_SIZE)) if start else "",
        older=str(start + PAGE_SIZE) if found.has_more else "",
        before=start,
    )


def _found(wanted: Filters, user: Person, start: int) -> FoundGroups:
    """Return a page of groups, remembered until an event, for as long as `counts` are at most.

    It reads every row that it counts, which takes long.
    """
    newest = Event.objects.order_by("-pk").values_list("pk", flat=True).first()
    shown = wanted.tab, wanted.kind, wanted.owner, wanted.query, wanted.group, start, user.pk
    key = f"dashboard-groups:{hash((*shown, newest, Operation.objects.count()))}"
    found: FoundGroups | None = cache.get(key)
    if found is None:
        began = time.perf_counter()
        found = grouped(wanted.apply(user), wanted.group, limit=PAGE_SIZE, offset=start)
        seconds = max(COUNTS_SECONDS, TIMES_AS_LONG * (time.perf_counter() - began))
        cache.set(key, found, seconds)
    return found


def _line(wanted: Filters, group: OperationGroup) -> Line:
    query = f"{wanted.query} {group['query']}".strip()
    url = wanted.url(q=query, group="") if group["query"] else ""
    return Line(group, group["label"] or f"no {wanted.group}", url)
