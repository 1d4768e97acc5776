"""The filters of the list page: read from its URL, applied by the API's criteria."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from django.core.cache import cache
from django.db.models import Count
from django.http import QueryDict

from apps.operations.filters import Criteria, narrowed
from apps.operations.lifecycle import ACTIVE, State
from apps.operations.models import Operation, OperationQuerySet
from apps.operations.requests.access import Person
from apps.operations.search.conditions import condition
from apps.operations.search.language import MAX_LENGTH, QueryError
from apps.operations.search.sorting import MAX_LENGTH as MAX_NAME
from apps.operations.search.sorting import is_sort, is_value
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
COUNTS_SECONDS = 2
MAX_COLUMNS = 12


@dataclass(frozen=True, slots=True)
class Filters:
    """The state of the list. Unknown values fall back to "everything": an old link still works."""

    tab: str = ""
    kind: str = ""
    owner: str = ""  # "" anyone, "me", or a username
    query: str = ""
    sort: str = ""  # "" newest first
    columns: tuple[str, ...] = ()  # metrics, config fields and columns, in addition
    group: str = ""  # what the operations are grouped by; "" a list
    problem: str = ""  # of the query; nothing matches then

    @classmethod
    def read(cls, query: QueryDict, user: Person) -> "Filters":
        tab, kind = query.get("tab", ""), query.get("kind", "")
        text = query.get("q", "")[: MAX_LENGTH + 1].replace("\0", "").strip()
        return cls(
            tab=tab if tab in TABS else "",
            kind=kind if kind in KINDS else "",
            owner=query.get("owner", "")[:150].replace("\0", ""),
            query=text,
            sort=sort if is_sort(sort := query.get("sort", "")) else "",
            columns=_columns(query.get("columns", "")),
            group=query.get("group", "")[:MAX_NAME].replace("\0", "").strip(),
            problem=_problem(text, user),
        )

    def url(self, **changes: str) -> str:
        """Return this view's query string, with some of it changed; defaults are left out."""
        now = {"tab": self.tab, "kind": self.kind, "owner": self.owner, "q": self.query}
        now |= {"sort": self.sort, "columns": ",".join(self.columns), "group": self.group}
        return urlencode({name: value for name, value in (now | changes).items() if value})

    @property
    def is_default(self) -> bool:
        return self == Filters(sort=self.sort, columns=self.columns, group=self.group)

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


def _columns(text: str) -> tuple[str, ...]:
    """Return the names of values in `text`, separated by commas or white space."""
    names = (name for name in text.replace(",", " ").split() if is_value(name))
    return tuple(dict.fromkeys(names))[:MAX_COLUMNS]


def _problem(query: str, user: Person) -> str:
    try:
        condition(query, user)
    except QueryError as error:
        return error.message
    return ""


def counts(filters: Filters, user: Person) -> dict[str, int]:
    """Return how many operations each tab holds and each state has, remembered for a moment."""
    if filters.problem:
        return dict.fromkeys([*State.values, *TABS], 0)
    key = f"dashboard-counts:{hash((filters.kind, filters.owner, filters.query, user.pk))}"
    found: dict[str, int] | None = cache.get(key)
    if found is None:
        found = _counted(filters, user)
        cache.set(key, found, COUNTS_SECONDS)
    return found


def _counted(filters: Filters, user: Person) -> dict[str, int]:
    """Count by state from the index alone; only two tabs need more than the state."""
    common = narrowed(Operation.objects.order_by(), filters.criteria, user)
    grouped = common.values_list("state").annotate(number=Count("pk"))
    by_state = dict.fromkeys(State.values, 0) | dict(grouped)
    by_tab = {
        tab: sum(by_state[state] for state in criteria.get("status", State.values))
        if criteria.keys() <= {"status"}
        else narrowed(common, criteria, user).count()
        for tab, criteria in CRITERIA.items()
    }
    return by_state | by_tab
