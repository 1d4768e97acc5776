"""Shares at this moment: limits, weights, and what running operations use of them.

Only rows of shares and of running attempts are read; ended attempts only where GPU hours of a week
are limited, and for budgets.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import (
    Case,
    DurationField,
    ExpressionWrapper,
    F,
    IntegerField,
    Q,
    QuerySet,
    Sum,
    Value,
    When,
)
from django.db.models.functions import Greatest
from django.utils import timezone

from apps.operations.lifecycle import State
from apps.operations.models import Attempt, Operation, PastUse, Share
from apps.operations.models.compute_time import (
    END,
    FACTORS,
    HOUR_SECONDS,
    Period,
    computing_since,
    monday_of,
)
from apps.operations.sharing import Allowance, Budget

Key = int | str | None  # of an owner or a project
ShareKeys = tuple[tuple[int | None, str], ...]  # owner and project of shares
Hours = tuple[Any, float, float]  # owner and project, GPU hours, compute hours
REMEMBERED_SECONDS = 10
LATE_SECONDS = 60  # an end may be committed so long after its time
_NAMES: Final = {
    "owner_key": F("operation__owner"),
    "owner_name": F("operation__owner__username"),
    "project": F("operation__project"),
}


@dataclass(frozen=True, slots=True)
class Ranking:
    """The places of owners, or of projects, within a priority: the least use goes first."""

    column: str
    places: Mapping[Key, int]  # of those that use something; all others have place 0

    @property
    def expression(self) -> Case:
        by_place: dict[int, list[Key]] = defaultdict(list)
        for key, place in self.places.items():
            by_place[place].append(key)
        whens = [
            When(_is_one_of(self.column, keys), Value(each)) for each, keys in by_place.items()
        ]
        return Case(*whens, default=Value(0), output_field=IntegerField())


@dataclass(frozen=True, slots=True)
class Shares:
    """What owners and projects may use, and use now."""

    owners: Mapping[Key, Allowance]  # that have a share or use something
    projects: Mapping[Key, Allowance]
    default: Allowance  # of all other owners

    @property
    def has_limits(self) -> bool:
        known = (self.default, *self.owners.values(), *self.projects.values())
        return any(each.has_limits for each in known)

    def of(self, owner_id: int | None, project: str) -> list[Allowance]:
        """Return what limits the operations of an owner in a project."""
        of_owner = None if owner_id is None else self.owners.get(owner_id, self.default)
        found = of_owner, self.projects.get(project)
        return [each for each in found if each is not None and each.has_limits]

    def allowed(self, *, on_gpus: bool) -> Q:
        """Return the condition of the operations that may start now.

        on_gpus: whether those that may use GPUs would use them.
        """
        if not self.has_limits:
            return Q()
        exceeded = self._exceeded(lambda each: each.slots_left)
        exceeded |= ~Q(device="cpu") & self._exceeded(
            lambda each: None if each.has_gpu_budget_left else 0
        )
        if on_gpus:
            exceeded |= ~Q(device="cpu") & self._exceeded(lambda each: each.gpus_left)
        return ~exceeded

    def _exceeded(self, left: Callable[[Allowance], int | None]) -> Q:
        """Return the condition of the operations that need more of something than is left."""
        found = Q(pk__in=[])
        for column, allowances in (("owner", self.owners), ("project", self.projects)):
            keys_by_left: dict[int, list[Key]] = defaultdict(list)
            for key, allowance in allowances.items():
                if (number := left(allowance)) is not None:
                    keys_by_left[number].append(key)
            for number, keys in keys_by_left.items():
                found |= _is_one_of(column, keys) & _needs_more_than(number)
        if (number := left(self.default)) is not None:
            others = Q(owner__isnull=False) & ~_is_one_of("owner", list(self.owners))
            found |= others & _needs_more_than(number)
        return found

    @property
    def rankings(self) -> list[Ranking]:
        """Return the order within a priority: by owners; by projects if one has a weight."""
        found = [_ranking("owner", self.owners)]
        if any(each.weight != 1 for each in self.projects.values()):
            found.append(_ranking("project", self.projects))
        return [each for each in found if each.places]

    @property
    def order(self) -> list[Case]:
        """Return what `next_first` orders by within a priority."""
        return [each.expression for each in self.rankings]

    def places(self, owner_id: int | None, project: str) -> list[tuple[Case, int]]:
        """Return the place of an operation in each part of this order; see `sooner_than`."""
        keys: Mapping[str, Key] = {"owner": owner_id, "project": project}
        return [(each.expression, each.places.get(keys[each.column], 0)) for each in self.rankings]


def current(*, has_order: bool = True) -> Shares:
    """Read all shares and what is used of them: two queries.

    Two more where GPU hours of a week are limited, and for each period of budgets.

    has_order: False where only limits count; then, without any, it is one query.
    """
    shares = list(Share.objects.select_related("owner"))
    default = _default()
    owners: dict[Key, Allowance] = {each.owner_id: _limits(each) for each in shares}
    owners.pop(None, None)  # shares of projects
    projects: dict[Key, Allowance] = {each.project: _limits(each) for each in shares}
    projects.pop("", None)
    known = Shares(owners, projects, default)
    if not (has_order or known.has_limits):
        return known
    use = _Use(owners, projects, default)
    use.add_running()
    every = default, *owners.values(), *projects.values()
    if any(each.max_gpu_hours is not None for each in every):
        for row, gpu_hours, _ in _used_since(monday_of(timezone.now()), is_on_gpus=True):
            use.add(row, gpu_hours=gpu_hours)
    for period in {Period(each.budget_period) for each in shares if has_budget(each)}:
        of_period = [each for each in shares if has_budget(each) and each.budget_period == period]
        begin, _ = period.bounds(timezone.now())
        for row, *hours in _used_since(begin, of_period):
            use.add_to_budgets(row, period, *hours)
    return known


def has_budget(share: Share) -> bool:
    return share.budget_gpu_hours is not None or share.budget_compute_hours is not None


def locked(operation: Operation, known: Shares) -> list[Allowance]:
    """Return what limits an operation, and how much of it is used.

    No other claim changes that until the transaction ends. The hours are those of `known`, since
    claims do not change them.
    """
    owner = User.objects.filter(operations=operation).order_by()
    project = Share.objects.filter(project=operation.project).exclude(project="").order_by()
    for rows in (owner, project):
        list(rows.select_for_update(of=("self",), no_key=True).values_list("pk", flat=True))
    owners, projects = (
        {key: replace(each, slots=0, gpus=0) for key, each in allowances.items()}
        for allowances in (known.owners, known.projects)
    )
    _Use(owners, projects, known.default).add_running()
    return Shares(owners, projects, known.default).of(operation.owner_id, operation.project)


@dataclass(frozen=True, slots=True)
class _Use:
    """Allowances to which the use of running operations is added."""

    owners: dict[Key, Allowance]
    projects: dict[Key, Allowance]
    default: Allowance

    def add_running(self) -> None:
        for row in _running():
            self.add(row, slots=row["slots"], gpus=row["gpus"])

    def add(self, row: Mapping[str, Any], **amounts: float) -> None:
        key, name, project = row["owner_key"], row["owner_name"], row["project"]
        of_others = Allowance("") if key is None else replace(self.default, name=name)
        _add(self.owners, key, of_others, amounts)
        _add(self.projects, project, Allowance(f"project {project}"), amounts)

    def add_to_budgets(
        self, row: Mapping[str, Any], period: Period, gpu_hours: float, compute_hours: float
    ) -> None:
        for known, key in (self.owners, row["owner_key"]), (self.projects, row["project"]):
            allowance = known.get(key)
            if allowance and (budget := allowance.budget) and budget.period == period.label:
                more = replace(
                    budget,
                    used_gpu_hours=budget.used_gpu_hours + gpu_hours,
                    used_compute_hours=budget.used_compute_hours + compute_hours,
                )
                known[key] = replace(allowance, budget=more)


def _add(
    known: dict[Key, Allowance], key: Key, new: Allowance, amounts: Mapping[str, float]
) -> None:
    before = known.get(key, new)
    known[key] = replace(
        before, **{name: getattr(before, name) + amount for name, amount in amounts.items()}
    )


def _limits(share: Share) -> Allowance:
    limits = share.max_slots, share.max_gpus, share.gpu_hours_per_week
    return Allowance(str(share), share.weight, *limits, budget=_budget(share))


def _budget(share: Share) -> Budget | None:
    if not has_budget(share):
        return None
    period = Period(share.budget_period)
    _, renewed_at = period.bounds(timezone.now())
    return Budget(str(period.label), renewed_at, share.budget_gpu_hours, share.budget_compute_hours)


def _default() -> Allowance:
    thresholds = settings.THRESHOLDS
    return Allowance(
        "its owner",
        max_slots=thresholds.max_slots_per_person or None,
        max_gpus=thresholds.max_gpus_per_person or None,
        max_gpu_hours=thresholds.max_gpu_hours_per_person or None,
    )


def _running() -> Iterator[Any]:
    """Yield the slots and GPUs in use, by owner and project. Coordinators take none."""
    running = Attempt.objects.filter(
        operation__state=State.RUNNING,
        operation__takes_slot=True,
        number=F("operation__attempt"),
    )
    rows: Any = running.order_by().values(**_NAMES)
    yield from rows.annotate(slots=Sum(FACTORS["processes"]), gpus=Sum(FACTORS["num_gpus"]))


def _used_since(
    begin: datetime, of: Sequence[Share] | None = None, *, is_on_gpus: bool = False
) -> Iterator[Hours]:
    """Yield owner and project, GPU hours and compute hours of attempts since midnight of a day.

    Those of deleted operations count, too. of: only for these shares; None: all. What ended more
    than a minute ago is remembered for some seconds, as it may be the whole history.
    """
    now = timezone.now().timestamp()
    until = datetime.fromtimestamp(now - now % REMEMBERED_SECONDS - LATE_SECONDS, UTC)
    until = max(begin, until)
    keys = None if of is None else tuple((each.owner_id, each.project) for each in of)
    yield from past_hours(begin, until, keys, is_on_gpus)
    yield from _hours(computing_since(until), begin, keys, is_on_gpus)


@lru_cache(maxsize=16)
def past_hours(
    begin: datetime, until: datetime, keys: ShareKeys | None, is_on_gpus: bool
) -> Sequence[Hours]:
    """Return what ended until a moment. Remembered, so another moment reads it again."""
    ended = computing_since(begin).filter(ended_at__lte=until)
    found = list(_hours(ended, begin, keys, is_on_gpus))
    past = PastUse.objects.filter(day__gte=begin.date()).order_by()
    if keys is not None:
        past = past.filter(_is_of(keys))
    names = {"owner_key": F("owner"), "owner_name": F("owner__username")}
    kept: Any = past.values("project", **names)
    kept = kept.annotate(on_gpus=Sum("gpu_seconds"), in_all=Sum("compute_seconds"))
    found += [(row, row["on_gpus"] / HOUR_SECONDS, row["in_all"] / HOUR_SECONDS) for row in kept]
    return found


def _hours(
    attempts: QuerySet[Attempt], begin: datetime, keys: ShareKeys | None, is_on_gpus: bool
) -> Iterator[Hours]:
    took = ExpressionWrapper(
        F("end") - Greatest(F("started_at"), Value(begin)), output_field=DurationField()
    )
    attempts = attempts.annotate(end=END)
    if is_on_gpus:
        attempts = attempts.exclude(device="")
    if keys is not None:
        attempts = attempts.filter(_is_of(keys, "operation__"))
    rows: Any = attempts.values(**_NAMES, **FACTORS)
    for row in rows.annotate(took=Sum(took)):
        hours = max(0.0, row["took"].total_seconds() / HOUR_SECONDS)
        yield row, hours * row["num_gpus"], hours * row["processes"]


def _is_of(keys: ShareKeys, prefix: str = "") -> Q:
    """Return the condition of what belongs to one of these owners or projects."""
    owners = [owner for owner, _ in keys if owner is not None]
    projects = [project for _, project in keys if project]
    return Q(**{f"{prefix}owner__in": owners}) | Q(**{f"{prefix}project__in": projects})


def _ranking(column: str, allowances: Mapping[Key, Allowance]) -> Ranking:
    use = {key: each.slots / each.weight for key, each in allowances.items() if each.slots}
    places = {each: number for number, each in enumerate(sorted({*use.values()}), start=1)}
    return Ranking(column, {key: places[each] for key, each in use.items()})


def _is_one_of(column: str, keys: Sequence[Key]) -> Q:
    known = Q(**{f"{column}__in": [each for each in keys if each is not None]})
    return known | Q(**{column: None}) if None in keys else known


def _needs_more_than(left: int) -> Q:
    """Return the condition that the processes of all nodes take more slots than are left."""
    of_each_node = ExpressionWrapper(Value(left) / F("min_nodes"), output_field=IntegerField())
    return Q(takes_slot=True, processes__gt=of_each_node)
