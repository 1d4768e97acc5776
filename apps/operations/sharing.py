"""What owners and projects may use at once, and what of it they use. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from apps.operations.placement import Need


@dataclass(frozen=True, slots=True)
class Budget:
    """The hours of a period, and what is used of them. None: no limit."""

    period: str  # "this week", "this month", "in total"
    renewed_at: datetime | None = None  # None: never
    gpu_hours: float | None = None
    compute_hours: float | None = None  # times processes
    used_gpu_hours: float = 0.0
    used_compute_hours: float = 0.0

    @property
    def unused(self) -> "Budget":
        return replace(self, used_gpu_hours=0.0, used_compute_hours=0.0)

    def problem(self, *, on_gpus: bool) -> str:
        """Return what is used up, after the name of an owner or a project; "": nothing."""
        if _is_reached(self.used_compute_hours, self.compute_hours):
            return self._problem("compute", self.used_compute_hours, self.compute_hours or 0)
        if on_gpus and _is_reached(self.used_gpu_hours, self.gpu_hours):
            return self._problem("GPU", self.used_gpu_hours, self.gpu_hours or 0)
        return ""

    def _problem(self, what: str, used: float, limit: float) -> str:
        if limit == 0:
            return f"has a budget of 0 {what} hours"
        renewal = "it is not renewed"
        if self.renewed_at is not None:
            renewal = f"it is renewed on {self.renewed_at:%Y-%m-%d at %H:%M} UTC"
        budget = f"{used:.1f} of {limit:g} {what} hours of its budget {self.period}"
        return f"has used {budget}; {renewal}"


def _is_reached(used: float, limit: float | None) -> bool:
    return limit is not None and used >= limit


@dataclass(frozen=True, slots=True)
class Allowance:
    """The limits of an owner or a project, and what its running operations use now.

    None: no limit.
    """

    name: str  # as the subject of a sentence: "ana", "project vision"
    weight: float = 1.0
    max_slots: int | None = None
    max_gpus: int | None = None
    max_gpu_hours: float | None = None  # of a week
    slots: int = 0
    gpus: int = 0
    gpu_hours: float = 0.0  # of this week
    budget: Budget | None = None  # when it is used up, running operations are handed back

    @property
    def has_limits(self) -> bool:
        limits = self.max_slots, self.max_gpus, self.max_gpu_hours, self.budget
        return any(each is not None for each in limits)

    @property
    def slots_left(self) -> int | None:
        if self.budget_problem(on_gpus=False):
            return 0
        return None if self.max_slots is None else max(0, self.max_slots - self.slots)

    @property
    def gpus_left(self) -> int | None:
        """Return how many more GPUs it may use; none once its GPU hours are used."""
        if self.max_gpu_hours is not None and self.gpu_hours >= self.max_gpu_hours:
            return 0
        return None if self.max_gpus is None else max(0, self.max_gpus - self.gpus)

    @property
    def has_gpu_budget_left(self) -> bool:
        return not self.budget_problem(on_gpus=True)

    def budget_problem(self, *, on_gpus: bool) -> str:
        """Say which budget is used up; "": none.

        on_gpus: for what may use GPUs. An operation of the device `auto` does not start without
        them either: it may have computed on a GPU before, and results differ between devices.
        """
        problem = self.budget.problem(on_gpus=on_gpus) if self.budget else ""
        return f"{self.name} {problem}" if problem else ""

    def max_nodes(self, need: Need, *, on_gpus: bool) -> int | None:
        """Return how many nodes of an operation it allows now; None: any number."""
        if not need.takes_slot:
            return None
        if self.budget_problem(on_gpus=need.device != "cpu"):
            return 0
        limits = [self.slots_left, self.gpus_left if on_gpus else None]
        left = [each // need.processes for each in limits if each is not None]
        return min(left, default=None)

    def allows(self, need: Need, *, on_gpus: bool) -> bool:
        """Whether an operation may start now, on GPUs or without."""
        nodes = self.max_nodes(need, on_gpus=on_gpus)
        return nodes is None or nodes >= need.min_nodes

    @property
    def unused(self) -> "Allowance":
        """Return the same limits with nothing used."""
        budget = self.budget.unused if self.budget else None
        return replace(self, slots=0, gpus=0, gpu_hours=0.0, budget=budget)

    def explain(self, need: Need, *, on_gpus: bool) -> str:
        """Say which limit keeps an operation that it does not allow from starting."""
        if problem := self.budget_problem(on_gpus=need.device != "cpu"):
            return problem
        if on_gpus and self.allows(need, on_gpus=False):
            if self.max_gpu_hours == 0:
                return f"{self.name} may use no GPU"
            if self.max_gpu_hours is not None and self.gpu_hours >= self.max_gpu_hours:
                return (
                    f"{self.name} has used {self.gpu_hours:.1f} of {self.max_gpu_hours:g} GPU "
                    "hours of this week, which ends on Sunday (UTC)"
                )
            return self._explain("GPU", self.gpus, self.max_gpus or 0, need)
        return self._explain("slot", self.slots, self.max_slots or 0, need)

    def _explain(self, what: str, used: int, limit: int, need: Need) -> str:
        needed = need.processes * need.min_nodes
        limits = f"{limit} {what if limit == 1 else what + 's'}"
        if needed > limit:
            return f"{self.name} may use {limits} at once, and it needs {needed}"
        return f"{self.name} uses {used} of {limits}" + (
            f", and it needs {needed}" if needed > 1 else ""
        )


def max_nodes(allowances: Sequence[Allowance], need: Need, *, on_gpus: bool) -> int:
    """Return how many nodes of an operation all of them allow now; 0 if fewer than it needs."""
    limits = [each.max_nodes(need, on_gpus=on_gpus) for each in allowances]
    nodes = min([need.nodes, *(each for each in limits if each is not None)])
    return nodes if nodes >= need.min_nodes else 0


def first_exceeded(
    allowances: Sequence[Allowance], need: Need, *, on_gpus: bool
) -> Allowance | None:
    """Return the first of them that does not allow an operation now; None if all do."""
    return next((each for each in allowances if not each.allows(need, on_gpus=on_gpus)), None)
