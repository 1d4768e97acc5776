"""The list's view of the world: what its URL says, and the queryset that this means."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.core.cache import cache
from django.db.models import Count, Q
from django.http import QueryDict

from apps.operations import attention
from apps.operations.lifecycle import ACTIVE, RESUMABLE, State
from apps.operations.models import Operation, OperationQuerySet
from trainops.kind import KINDS

TABS = {  # name in the URL → label
    "": "All",
    "active": "Active",
    "attention": "Needs attention",
    "resumable": "Resumable",
    "done": "Done",
}
STATES: dict[str, frozenset[State]] = {  # of the tabs that show certain states
    "": frozenset(State),
    "active": ACTIVE,
    "resumable": RESUMABLE,
    "done": frozenset({State.COMPLETED}),
}
COUNTS_SECONDS = 2
MAX_QUERY_LENGTH = 200


@dataclass(frozen=True, slots=True)
class Filters:
    """The state of the list. Unknown values fall back to "everything": an old link still works."""

    tab: str = ""
    kind: str = ""
    owner: str = ""  # "" anyone, "me", or a username
    query: str = ""

    @classmethod
    def read(cls, query: QueryDict) -> "Filters":
        tab, kind = query.get("tab", ""), query.get("kind", "")
        return cls(
            tab=tab if tab in TABS else "",
            kind=kind if kind in KINDS else "",
            owner=query.get("owner", "")[:150].replace("\0", ""),
            query=query.get("q", "")[:MAX_QUERY_LENGTH].replace("\0", "").strip(),
        )

    def url(self, **changes: Any) -> str:
        """Return this view's query string, with some of it changed; defaults are left out."""
        now = {"tab": self.tab, "kind": self.kind, "owner": self.owner, "q": self.query}
        return urlencode({name: value for name, value in (now | changes).items() if value})

    @property
    def is_default(self) -> bool:
        return self == Filters()

    def narrow(self, operations: OperationQuerySet, user: Any) -> OperationQuerySet:
        """Apply everything but the tab."""
        if self.kind:
            operations = operations.filter(kind=self.kind)
        if self.owner == "me":
            operations = operations.filter(owner=user)
        elif self.owner:
            operations = operations.filter(owner__username=self.owner)
        for term in self.query.split():
            operations = operations.filter(_matches(term))
        return operations

    def apply(self, operations: OperationQuerySet, user: Any) -> OperationQuerySet:
        operations = self.narrow(operations, user)
        if self.tab == "attention":
            return operations.filter(attention.needed())
        if self.tab:
            operations = operations.filter(state__in=sorted(STATES[self.tab]))
        return operations


def _matches(term: str) -> Q:
    prefix, _, rest = term.partition(":")
    if rest and (by := PREFIXES.get(prefix)):
        return by(rest)
    return Q(name__icontains=term) | Q(id__icontains=term)


PREFIXES: dict[str, Callable[[str], Q]] = {
    "tag": lambda name: Q(pk__in=_tagged(name)),
    "worker": lambda name: Q(worker_id__icontains=name),
    "recipe": lambda name: Q(recipe=name),
    "reason": lambda name: Q(reason__iexact=name),
}


def _tagged(name: str) -> Any:
    return Operation.objects.filter(tags__name=name).values("pk")


def counts(filters: Filters, user: Any) -> dict[str, int]:
    """Return how many operations each tab holds and each state has, remembered for a moment."""
    key = f"dashboard-counts:{hash((filters.kind, filters.owner, filters.query, user.pk))}"
    found: dict[str, int] | None = cache.get(key)
    if found is None:
        found = _counted(filters.narrow(Operation.objects.whole(), user).order_by())
        cache.set(key, found, COUNTS_SECONDS)
    return found


def _counted(operations: OperationQuerySet) -> dict[str, int]:
    """Count them: by state from the index alone, and those that need attention apart."""
    grouped = operations.values_list("state").annotate(number=Count("pk"))
    by_state = dict.fromkeys(State.values, 0) | dict(grouped)
    by_tab = {tab: sum(by_state[state] for state in states) for tab, states in STATES.items()}
    return by_state | by_tab | {"attention": operations.filter(attention.needed()).count()}
