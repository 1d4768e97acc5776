"""The filters of the list page: read from its URL, applied by the API's criteria."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.core.cache import cache
from django.db.models import Count, Q
from django.http import QueryDict

from apps.dashboard.rows import ListColumns
from apps.operations import attention
from apps.operations.filters import Criteria, narrowed
from apps.operations.lifecycle import ACTIVE, State
from apps.operations.models import Operation, OperationQuerySet
from apps.operations.requests import access
from apps.operations.requests.access import Person
from apps.operations.search import columns as list_columns
from apps.operations.search.conditions import (
    condition,
    is_resumable,
    mentions_archived,
    owner_id,
)
from apps.operations.search.language import MAX_LENGTH, QueryError
from apps.operations.search.sorting import MAX_LENGTH as MAX_NAME
from apps.operations.search.sorting import is_sort
from trainops.kind import KINDS

TABS = {  # name in the URL → label
    "": "All",
    "active": "Active",
    "attention": "Needs attention",
    "resumable": "Resumable",
    "done": "Done",
}


CRITERIA: Mapping[str, Criteria] = {  # of each tab
    "": {},
    "active": {"status": sorted(ACTIVE)},
    "attention": {"needs_attention": True},
    "resumable": {"resumable": True},
    "done": {"status": [State.COMPLETED]},
}
CONDITIONS: Mapping[str, Callable[[], Q]] = {  # of criteria that need more than the state
    "needs_attention": attention.needed,
    "resumable": is_resumable,
}
COUNTS_SECONDS = 2
TIMES_AS_LONG = 20  # times as long as counting took are its numbers remembered, at least


@dataclass(frozen=True, slots=True)
class Filters:
    """The state of the list. Unknown values fall back to "everything": an old link still works."""

    tab: str = ""
    kind: str = ""
    owner: str = ""  # "" anyone, "me", or a username
    query: str = ""
    sort: str = ""  # "" newest first
    columns: tuple[str, ...] = ()  # metrics, config fields and columns, in addition
    removed: tuple[str, ...] = ()  # columns of the list that are not shown
    group: str = ""  # what the operations are grouped by; "" a list
    problem: str = ""  # of the query; nothing matches then

    @classmethod
    def read(cls, query: QueryDict, user: Person) -> "Filters":
        tab, kind = query.get("tab", ""), query.get("kind", "")
        text = query.get("q", "")[: MAX_LENGTH + 1].replace("\0", "").strip()
        columns, removed = list_columns.split(list_columns.words(query.get("columns", "")))
        return cls(
            tab=tab if tab in TABS else "",
            kind=kind if kind in KINDS else "",
            owner=query.get("owner", "")[:150].replace("\0", ""),
            query=text,
            sort=sort if is_sort(sort := query.get("sort", "")) else "",
            columns=columns,
            removed=removed,
            group=query.get("group", "")[:MAX_NAME].replace("\0", "").strip(),
            problem=_problem(text, user),
        )

    def url(self, **changes: str) -> str:
        """Return this view's query string, with some of it changed; defaults are left out."""
        now = {"tab": self.tab, "kind": self.kind, "owner": self.owner, "q": self.query}
        now |= {"sort": self.sort, "columns": ",".join(self.column_names), "group": self.group}
        return urlencode({name: value for name, value in (now | changes).items() if value})

    @property
    def column_names(self) -> list[str]:
        """The names in the field of the columns: added ones, and removed ones with a minus sign."""
        return list_columns.joined(self.columns, self.removed)

    @property
    def is_default(self) -> bool:
        return self == Filters(
            sort=self.sort, columns=self.columns, removed=self.removed, group=self.group
        )

    @property
    def criteria(self) -> Criteria:
        """What all tabs have in common, in the words of OperationQuery."""
        found: Criteria = {"owner": self.owner} if self.owner else {}
        if self.kind:
            found["kind"] = [self.kind]
        if self.query:
            found["q"] = self.query
        return found

    def apply(self, user: Person) -> OperationQuerySet:
        if self.problem:
            return Operation.objects.none()
        return narrowed(Operation.objects.all(), {**self.criteria, **CRITERIA[self.tab]}, user)


def _problem(query: str, user: Person) -> str:
    try:
        condition(query, user)
    except QueryError as error:
        return error.message
    return ""


def counts(filters: Filters, user: Person) -> dict[str, int]:
    """Return how many operations each tab holds and each state has, remembered for a moment.

    Numbers that take long are remembered longer, so that open pages cost the database little.
    """
    if filters.problem:
        return dict.fromkeys([*State.values, *TABS], 0)
    found: dict[str, int] | None = cache.get(_key(filters, user))
    if found is None:
        began = time.perf_counter()
        found = _counted(filters, user)
        seconds = max(COUNTS_SECONDS, TIMES_AS_LONG * (time.perf_counter() - began))
        cache.set(_key(filters, user), found, seconds)
    return found


def remember(filters: Filters, user: Person, numbers: dict[str, int]) -> None:
    """Have `counts` return these for a moment."""
    cache.set(_key(filters, user), numbers, COUNTS_SECONDS)


def counted_in(rows: Sequence[ListColumns]) -> dict[str, int]:
    """Return what `counts` does, of a list that is on one page."""
    by_state = Counter(row["state"] for row in rows)
    numbers = {
        "needs_attention": sum(map(attention.is_needed, rows)),
        "resumable": sum(map(access.is_resumable, rows)),
    }
    return _by_tab(by_state, numbers)


def _key(filters: Filters, user: Person) -> str:
    return f"dashboard-counts:{hash((filters.kind, filters.owner, filters.query, user.pk))}"


def _counted(filters: Filters, user: Person) -> dict[str, int]:
    """Count by state, and for the tabs that need more than the state.

    Each number has an index of its own. So that it is used, conditions that are also those of
    larger indexes (kind, owner) are none of the rows, but of what is counted.
    """
    query: Criteria = {"q": filters.query} if filters.query else {}
    every = narrowed(Operation.objects.order_by(), query, user)
    mine = Q(kind=filters.kind) if filters.kind else Q()
    if filters.owner:
        mine &= Q(owner_id=owner_id(filters.owner, user))
    by_state: Any = every.values("state").annotate(number=Count("pk", filter=mine or None))
    text = condition(filters.query, user)
    shown = (
        Operation.objects.whole()
        if mentions_archived(filters.query)
        else Operation.objects.listed()
    )
    numbers = {
        name: shown.filter(of()).aggregate(number=Count("pk", filter=(text & mine) or None))[
            "number"
        ]
        for name, of in CONDITIONS.items()
    }
    return _by_tab({row["state"]: row["number"] for row in by_state}, numbers)


def _by_tab(by_state: Mapping[str, int], numbers: Mapping[str, int]) -> dict[str, int]:
    """Return the number of each state and of each tab. `numbers`: by the names of CONDITIONS."""
    found = dict.fromkeys(State.values, 0) | dict(by_state)
    for tab, criteria in CRITERIA.items():
        named = [numbers[name] for name in criteria if name in CONDITIONS]
        states = criteria.get("status", State.values)
        found[tab] = named[0] if named else sum(found[state] for state in states)
    return found
