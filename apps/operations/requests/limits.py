"""How many operations and studies one person may have at a time."""

from typing import TYPE_CHECKING

from apps.operations.models import Operation, Study
from trainops import person_limits

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def require_active(owner: "User | None", more: int = 1) -> None:
    """Raise LimitReached if that many more active operations exceed the limit of the owner.

    Clients' parts of an operation do not count.
    """
    if owner is not None:
        current = Operation.objects.active().whole().filter(owner=owner).count()
        person_limits.require(
            "waiting and running operations",
            "max_active_operations_per_person",
            current=current,
            more=more,
        )


def require_studies(owner: "User | None") -> None:
    """Raise LimitReached where the owner may not have another study."""
    if owner is not None:
        current = Study.objects.filter(owner=owner).count()
        person_limits.require("studies", "max_studies_per_person", current=current, more=1)
