"""The list of operations in groups: each with counts by state, and a link to its operations."""

from dataclasses import dataclass

from apps.dashboard.filters import Filters
from apps.operations.requests.access import Person
from apps.operations.search.groups import COLUMNS, GroupingError, OperationGroup, grouped
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
        found = grouped(wanted.apply(user), wanted.group, limit=PAGE_SIZE, offset=start)
    except GroupingError as error:
        return GroupPage([], problem=error.message)
    return GroupPage(
        [_line(wanted, each) for each in found.rows],
        newer=str(max(0, start - PAGE_SIZE)) if start else "",
        older=str(start + PAGE_SIZE) if found.has_more else "",
        before=start,
    )


def _line(wanted: Filters, group: OperationGroup) -> Line:
    query = f"{wanted.query} {group['query']}".strip()
    url = wanted.url(q=query, group="") if group["query"] else ""
    return Line(group, group["label"] or f"no {wanted.group}", url)
