"""Which operations need a person's attention, why, and what to do: one definition for all users.

Some reasons follow from columns that exist anyway: an operation has failed, or the self-check of
its checkpoints found that a resume would not be exact or is impossible. The others are concerns:
codes in the column `concerns`, which `queryset.move`, `concerns.py` and the sweep write. So lists
and counts read no other table. An operation needs attention until a user acknowledges it.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

from django.db.models import Count, Q, QuerySet, TextChoices

from apps.operations.indexes import NEEDS_ATTENTION
from apps.operations.lifecycle import ACTIVE, FINISHED, WAITING, Reason, State

if TYPE_CHECKING:
    from apps.operations.models import Operation

BAD_CHECKS = {
    "differs": "a resume would not be exact",
    "not_loaded": "its checkpoints cannot be resumed",
}


class Attention(TextChoices):
    """A reason, in the order in which pages show them; the label follows "needs attention:"."""

    FAILED = "FAILED", "it failed"
    OVER_BUDGET = "OVER_BUDGET", "its privacy budget or time limit ended it"
    CRASH_LOOPING = "CRASH_LOOPING", "it restarts from the same checkpoint again and again"
    STUCK = "STUCK", "no available worker, or no share, has what it waits for"
    LOW_DISK = "LOW_DISK", "no worker has the disk space that it waits for"
    NOT_SAVED = "NOT_SAVED", "its latest checkpoint could not be stored"
    CORRUPTED = "CORRUPTED", "the files of a checkpoint are altered"
    NOT_EXACT = "NOT_EXACT", BAD_CHECKS["differs"]
    NOT_LOADED = "NOT_LOADED", BAD_CHECKS["not_loaded"]


NEXT_STEPS: dict[str, str] = {
    Attention.FAILED: "Read the error; resume it once the cause is gone, or submit it again.",
    Attention.OVER_BUDGET: "Use the result as it is, or submit it again with a larger budget or "
    "fewer steps.",
    Attention.CRASH_LOOPING: "Compare the ends of its attempts: cancel it if the cause is in the "
    "recipe, else drain the worker.",
    Attention.STUCK: "Start a worker that has it or raise the limit of the share, or cancel the "
    "operation and submit it with other requirements.",
    Attention.LOW_DISK: "Free disk space on a worker that could run it: delete checkpoints or "
    "operations.",
    Attention.NOT_SAVED: "Read the event SAVE_FAILED; free disk space or quota before the "
    "operation stops, otherwise the work since the last checkpoint is lost.",
    Attention.CORRUPTED: "Check the disk of the storage; delete the checkpoint, or restore its "
    "files and verify it.",
    Attention.NOT_EXACT: "Have the recipe save all of its state, then check it with `recipes "
    "check`.",
    Attention.NOT_LOADED: "Correct how the recipe loads its state, then check it with `recipes "
    "check`.",
}
CONCERNS = (
    Attention.OVER_BUDGET,
    Attention.CRASH_LOOPING,
    Attention.STUCK,
    Attention.LOW_DISK,
    Attention.NOT_SAVED,
    Attention.CORRUPTED,
)  # written to the column; no code is a part of another one
OF_WAITING = frozenset({Attention.STUCK, Attention.LOW_DISK})
SPENT = frozenset({Reason.PRIVACY_BUDGET, Reason.TIME_LIMIT})  # reasons of an end by a budget
UNACKNOWLEDGED: dict[str, object] = {"acknowledged_at": None, "acknowledgement": ""}
_CHECKS = {"differs": Attention.NOT_EXACT, "not_loaded": Attention.NOT_LOADED}


class AttentionRow(TypedDict):
    """The columns of an operation that decide whether it needs attention."""

    state: str
    self_check: str
    concerns: str
    acknowledged_at: datetime | None


def row_of(operation: "Operation") -> AttentionRow:
    """Return the columns of an instance."""
    return {
        "state": operation.state,
        "self_check": operation.self_check,
        "concerns": operation.concerns,
        "acknowledged_at": operation.acknowledged_at,
    }


def needed() -> Q:
    """Return the condition on operations in a query."""
    return NEEDS_ATTENTION & Q(acknowledged_at=None)


def needed_for(*reasons: str) -> Q:
    """Return the condition that operations need attention for one of these reasons."""
    has_reason = Q(pk__in=[])
    for reason in reasons:
        has_reason |= _has(reason)
    return needed() & has_reason


def _has(reason: str) -> Q:
    if reason == Attention.FAILED:
        return Q(state=State.FAILED)
    if checks := [check for check, each in _CHECKS.items() if each == reason]:
        return Q(self_check__in=checks)
    return Q(concerns__gt="", concerns__contains=reason)


def counts(operations: QuerySet[Any]) -> dict[str, int]:
    """Return how many of these operations need attention for each reason; one query."""
    numbers = {reason: Count("pk", filter=_has(reason)) for reason in Attention.values}
    return operations.order_by().filter(needed()).aggregate(**numbers)


def reasons(row: AttentionRow) -> list[Attention]:
    """Return why an operation with these columns needs attention, acknowledged or not."""
    found = set(split(row["concerns"])) if row["concerns"] else set()
    if row["state"] == State.FAILED:
        found.add(Attention.FAILED)
    if check := _CHECKS.get(row["self_check"]):
        found.add(check)
    return [each for each in Attention if each in found] if found else []


def is_needed(row: AttentionRow) -> bool:
    """Whether an operation with these columns needs attention."""
    return row["acknowledged_at"] is None and bool(reasons(row))


def split(concerns: str) -> list[Attention]:
    """Return the codes of the column."""
    return [Attention(code) for code in concerns.split(",") if code]


def joined(concerns: Iterable[str]) -> str:
    """Return the value of the column for these codes."""
    wanted = set(concerns)
    return ",".join(each for each in CONCERNS if each in wanted)


def after_move(concerns: str, source: str, to: State, reason: object) -> str:
    """Return the column after a move between states; `reason` is that of an end.

    A crash loop lasts over its restarts, damage over everything; an attempt ends what it waited
    for, and what was not saved before.
    """
    kept = {Attention.CORRUPTED} & set(split(concerns))
    if source in ACTIVE and to in ACTIVE:
        kept |= {Attention.CRASH_LOOPING} & set(split(concerns))
    if source in WAITING and to in WAITING:
        kept |= OF_WAITING & set(split(concerns))
    if to in FINISHED and is_spent(reason):
        kept.add(Attention.OVER_BUDGET)
    return joined(kept)


def is_spent(reason: object) -> bool:
    """Whether an end for this reason is one by a budget; an expression is none."""
    return isinstance(reason, str) and reason in SPENT
