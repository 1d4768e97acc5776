"""Operations in groups that share a value: counts by state, and the best value of the objective."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, TypedDict

from django.db.models import Aggregate, Case, Count, F, Max, Min, Q, QuerySet, Value, When, lookups
from django.db.models.expressions import Combinable
from django.db.models.functions import NullIf

from apps.operations.lifecycle import State
from apps.operations.models import OperationQuerySet, Study
from apps.operations.search.best import EXTREMES
from apps.operations.search.json_values import NumberAt, TextAt
from apps.operations.search.language import quoted_value
from apps.operations.search.sorting import is_value
from apps.operations.search.values import METRICS, named, path_of
from trainops.errors import DomainError
from trainops.kind import KINDS, Objective

Key: TypeAlias = float | int | str | None
COLUMNS: Final[Mapping[str, Callable[[], Combinable]]] = {  # name -> what its groups share
    "study": lambda: F("study_id"),
    "kind": lambda: F("kind"),
    "recipe": lambda: NullIf(F("recipe"), Value("")),
    "state": lambda: F("state"),
    "owner": lambda: F("owner__username"),
    "project": lambda: NullIf(F("project"), Value("")),
    "tag": lambda: F("tags__name"),
}
FORM: Final = (
    f"{', '.join(COLUMNS)}, a config field, a recipe's parameter or a column, perhaps quoted"
)
OF_MONITORED: Final = Objective().metric  # the best value of the metric that `monitor` names
MAX_METRICS = 50  # distinct objectives of studies
MAX_OFFSET = 1_000_000


class GroupingError(DomainError):
    """Operations cannot be grouped by this; status 400."""

    def __init__(self, name: str) -> None:
        problem = f"got {name[:60]!r}; allowed: {FORM}"
        super().__init__(
            "VALIDATION_ERROR", f"group_by: {problem}", {"fields": {"group_by": problem}}
        )


CountName: TypeAlias = Literal[
    "num_pending", "num_running", "num_resuming", "num_completed", "num_failed", "num_cancelled"
]
COUNTS: Final[Mapping[State, CountName]] = {
    State.PENDING: "num_pending",
    State.RUNNING: "num_running",
    State.RESUMING: "num_resuming",
    State.COMPLETED: "num_completed",
    State.FAILED: "num_failed",
    State.CANCELLED: "num_cancelled",
}


class GroupRow(TypedDict, total=False):
    """A row of the query: the shared value, the counts by state, and the objective.

    Metrics and modes are the first and the last of the group's completed operations by name.
    """

    shared_number: float | None
    shared_text: str | None
    num_pending: int
    num_running: int
    num_resuming: int
    num_completed: int
    num_failed: int
    num_cancelled: int
    newest_at: datetime
    lowest: float
    highest: float
    first_metric: str | None
    last_metric: str | None
    first_mode: str | None
    last_mode: str | None


class BestOfGroup(TypedDict):
    """The best value of the objective that all completed operations of a group share."""

    name: str
    mode: str
    value: float


class OperationGroup(TypedDict):
    """Operations with one value. query: the term that finds them, or empty where none can.

    Operations with several tags are in several groups.
    """

    value: Key
    label: str
    query: str
    num_operations: int
    counts: dict[str, int]  # by state; only those that occur
    newest_at: datetime
    best: BestOfGroup | None


@dataclass(frozen=True, slots=True)
class FoundGroups:
    """Some groups, those with the newest operation first."""

    rows: list[OperationGroup]
    has_more: bool


def grouped(
    operations: OperationQuerySet, name: str, *, limit: int, offset: int = 0
) -> FoundGroups:
    """Return groups of these operations by `name`; at most three queries. Raises GroupingError."""
    keys = _keys(name)
    found: QuerySet[Any] = operations.order_by().annotate(**keys).values(*keys)
    found = found.annotate(**_counts(), **_objective(name)).order_by("-newest_at", *keys)
    rows: list[GroupRow] = list(found[offset : offset + limit + 1])
    values = [_value(row) for row in rows[:limit]]
    labels = _labels(name, values)
    groups = [
        _group(name, value, labels, row) for value, row in zip(values, rows[:limit], strict=True)
    ]
    return FoundGroups(groups, has_more=len(rows) > limit)


def require_groupable(name: str) -> None:
    """Raise GroupingError unless operations can be grouped by this."""
    _keys(name)


def _keys(name: str) -> dict[str, Combinable]:
    if name in COLUMNS:
        return {"shared_text": COLUMNS[name]()}
    if not is_value(name):
        raise GroupingError(name)
    value = named(name)
    if value.column in (METRICS, EXTREMES):
        raise GroupingError(name)
    if not value.path:
        return {"shared_number": value.number}
    text = Case(When(Q(lookups.IsNull(value.number, True)), then=value.text))
    return {"shared_number": value.number, "shared_text": text}


def _value(row: GroupRow) -> Key:
    number = row.get("shared_number")
    if number is None:
        return row.get("shared_text")
    return int(number) if float(number).is_integer() else float(number)


def _counts() -> dict[str, Aggregate]:
    counts: dict[str, Aggregate] = {
        name: Count("pk", filter=Q(state=state)) for state, name in COUNTS.items()
    }
    return {**counts, "newest_at": Max("created_at")}


def _objective(name: str) -> dict[str, Aggregate]:
    """Return aggregates of the objective: its extremes, and whether it is the same for all."""
    value, metric, mode = _of_studies() if name == "study" else _of_kinds()
    judged = Q(lookups.IsNull(value, False), state=State.COMPLETED)
    return {
        "lowest": Min(value, filter=judged),
        "highest": Max(value, filter=judged),
        "first_metric": Min(metric, filter=judged),
        "last_metric": Max(metric, filter=judged),
        "first_mode": Min(mode, filter=judged),
        "last_mode": Max(mode, filter=judged),
    }


_MONITOR, _MODE = ("config", ("monitor",)), ("config", ("mode",))


def _of_kinds() -> tuple[Case, Case, Case]:
    """Return the objective's value, metric and mode, by the kind of an operation."""
    objectives = {name: kind.objective for name, kind in KINDS.items()}
    value = [
        When(kind=name, then=NumberAt("result", path_of(each.metric)))
        for name, each in objectives.items()
    ]
    metric = [
        When(kind=name, then=Value(each.metric))
        for name, each in objectives.items()
        if each.metric != OF_MONITORED
    ]
    mode = [
        When(kind=name, then=Value(each.mode)) for name, each in objectives.items() if each.mode
    ]
    return (
        Case(*value),
        Case(*metric, default=TextAt(*_MONITOR)),
        Case(*mode, default=TextAt(*_MODE)),
    )


def _of_studies() -> tuple[Case, Case, Case]:
    """Return those of an operation's study; without a study there is none."""
    metrics = Study.objects.order_by().values_list("metric", flat=True).distinct()
    value = [
        When(study__metric=metric, then=NumberAt("result", path_of(metric)))
        for metric in metrics[:MAX_METRICS]
    ]
    metric = Case(
        When(study__metric=OF_MONITORED, then=TextAt(*_MONITOR)), default=F("study__metric")
    )
    return Case(*value, default=NumberAt("result", ())), metric, Case(default=F("study__mode"))


def _labels(name: str, values: Sequence[Key]) -> dict[Key, str]:
    """Return names for people, where they are others than the values."""
    if name != "study":
        return {}
    return dict(Study.objects.filter(pk__in=values).values_list("pk", "name"))


def _group(name: str, value: Key, labels: Mapping[Key, str], row: GroupRow) -> OperationGroup:
    counts = {state.value: row[num] for state, num in COUNTS.items()}
    return {
        "value": value,
        "label": labels.get(value, "" if value is None else str(value)),
        "query": _query(name, value),
        "num_operations": sum(counts.values()),
        "counts": {state: number for state, number in counts.items() if number},
        "newest_at": row["newest_at"],
        "best": _best(row),
    }


def _best(row: GroupRow) -> BestOfGroup | None:
    metric, mode = row["first_metric"], row["first_mode"]
    is_one = metric == row["last_metric"] and mode == row["last_mode"]
    if not is_one or metric is None or mode not in ("min", "max"):
        return None
    return {"name": metric, "mode": mode, "value": row["lowest" if mode == "min" else "highest"]}


def _query(name: str, value: Key) -> str:
    """Return the term of a query that the operations of a group fulfil."""
    if value is None:
        return f"no:{name}"
    if isinstance(value, int | float):
        return f"{name}={value!r}"
    is_column = name in COLUMNS
    if '"' in value or (not is_column and _reads_as_number(value)):
        return ""
    text = quoted_value(value.lower() if name == "state" else value)
    return f"{name}:{text}" if is_column else f"{name}={text}"


def _reads_as_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def without(name: str) -> Q:
    """Return the condition that operations do not have what `name` names."""
    if name == "tag":
        return Q(tags=None)
    if name in COLUMNS:
        return Q(lookups.IsNull(COLUMNS[name](), True))
    value = named(name)
    missing = Q(lookups.IsNull(value.number, True))
    return missing & Q(lookups.IsNull(value.text, True)) if value.path else missing
