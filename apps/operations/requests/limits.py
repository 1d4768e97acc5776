"""How many operations and studies one person may have at a time."""

from typing import TYPE_CHECKING

from apps.operations.models import Operation, Study
from trainops import person_limits

if TYPE_CHECKING:
    from django.contrib.auth.models import User

ACTIVE_LIMIT = "max_active_operations_per_person"


def require_active(owner: "User | None", more: int = 1) -> None:
    """Raise LimitReached if that many more active operations exceed the limit of the owner.

    Clients' parts of an operation do not count.
    """
    if owner is not None:
        person_limits.require(
            "waiting and running operations", ACTIVE_LIMIT, current=_num_active(owner), more=more
        )


def granted_active(owner: "User | None", more: int) -> int:
    """Return how many of that many more active operations the limit of the owner allows."""
    if owner is None:
        return more
    return person_limits.granted(ACTIVE_LIMIT, current=_num_active(owner), more=more)


def _num_active(owner: "User") -> int:
    return Operation.objects.active().whole().filter(owner=owner).count()


def require_studies(owner: "User | None") -> None:
    """Raise LimitReached where the owner may not have another study."""
    if owner is not None:
        current = Study.objects.filter(owner=owner).count()
        person_limits.require("studies", "max_studies_per_person", current=current, more=1)
