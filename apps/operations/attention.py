"""Which operations need a person's attention: one definition for the list, pages, API and counts.

An operation needs attention if it has failed, or if the self-check of its checkpoints found that a
resume would not be exact or is impossible.
"""

from collections.abc import Mapping
from typing import Any

from django.db.models import Q

from apps.operations.lifecycle import State

BAD_CHECKS = {
    "differs": "a resume would not be exact",
    "not_loaded": "its checkpoints cannot be resumed",
}


def needed() -> Q:
    """Return the condition on operations in a query."""
    return Q(state=State.FAILED) | Q(self_check__in=list(BAD_CHECKS))


def is_needed(row: Mapping[str, Any]) -> bool:
    """Whether an operation with this `state` and `self_check` needs attention."""
    return row["state"] == State.FAILED or row["self_check"] in BAD_CHECKS
