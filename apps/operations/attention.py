"""Which operations need a person's attention: one definition for the list, pages, API and counts.

An operation needs attention if it has failed, or if the self-check of its checkpoints found that a
resume would not be exact or is impossible, until a user acknowledges it.
"""

from datetime import datetime
from typing import TypedDict

from django.db.models import Q

from apps.operations.lifecycle import State

BAD_CHECKS = {
    "differs": "a resume would not be exact",
    "not_loaded": "its checkpoints cannot be resumed",
}


class AttentionRow(TypedDict):
    """The columns of an operation that decide whether it needs attention."""

    state: str
    self_check: str
    acknowledged_at: datetime | None


def needed() -> Q:
    """Return the condition on operations in a query."""
    is_bad = Q(state=State.FAILED) | Q(self_check__in=list(BAD_CHECKS))
    return is_bad & Q(acknowledged_at=None)


def is_needed(row: AttentionRow) -> bool:
    """Whether an operation with these columns needs attention."""
    is_bad = row["state"] == State.FAILED or row["self_check"] in BAD_CHECKS
    return is_bad and row["acknowledged_at"] is None
