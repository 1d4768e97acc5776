"""Budgets: what runs although the hours of its owner or project are used up is handed back."""

from collections.abc import Iterator
from functools import reduce
from operator import or_

from django.db.models import F, Q

from apps.operations.lifecycle import Handback, Reason, State
from apps.operations.models import Attempt, Share
from apps.operations.scheduling import handbacks, shares

_HAS_BUDGET = Q(budget_gpu_hours__isnull=False) | Q(budget_compute_hours__isnull=False)
_NONE = Q(pk__in=[])


def enforce(*, actor: str) -> int:
    """Request hand-backs, and withdraw those that no budget asks for any more.

    Return how many are requested.
    """
    exceeded = list(_used_up()) if Share.objects.filter(_HAS_BUDGET).exists() else []
    asked = Attempt.objects.filter(handback_reason=Reason.BUDGET_USED_UP)
    of_budgets = reduce(or_, (condition for condition, _ in exceeded), _NONE)
    handbacks.withdraw_all(asked.exclude(of_budgets), actor=actor)
    running = Attempt.objects.filter(
        operation__state=State.RUNNING,
        operation__takes_slot=True,
        number=F("operation__attempt"),
        handback_reason="",
    )
    num_requested = 0
    for condition, problem in exceeded:
        for attempt in running.filter(condition).select_related("operation"):
            handback = Handback(Reason.BUDGET_USED_UP, problem)
            num_requested += handbacks.request(attempt.operation, handback, actor=actor)
    return num_requested


def _used_up() -> Iterator[tuple[Q, str]]:
    """Yield which attempts run beyond a budget, and what is used up."""
    known = shares.current(has_order=False)
    for column, allowances in (("owner", known.owners), ("project", known.projects)):
        for key, allowance in allowances.items():
            of_share = Q(**{f"operation__{column}": key})
            if problem := allowance.budget_problem(on_gpus=False):
                yield of_share, problem
            elif problem := allowance.budget_problem(on_gpus=True):
                yield of_share & ~Q(device=""), problem
