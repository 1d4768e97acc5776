"""Which checkpoints are listed: what a `CheckpointQuery` means, for the API and the page."""

from datetime import timedelta
from typing import Literal, TypedDict

from django.db.models import Q

from apps.checkpoints.owners import owners
from trainops.clock import DatabaseNow

EQUAL: tuple[Literal["operation_id", "type", "health", "pinned"], ...] = (
    "operation_id",
    "type",
    "health",
    "pinned",
)


class CheckpointCriteria(TypedDict, total=False):
    """What `CheckpointQuery` validated."""

    operation_id: str
    operation: str
    kind: str
    finished: bool | None
    type: str
    health: str
    pinned: bool | None
    older_than_days: float


def wanted(query: CheckpointCriteria) -> Q:
    """Return the condition of the checkpoints that a query asks for."""
    found = Q()
    for name in EQUAL:
        if query.get(name) is not None:
            found &= Q(**{name: query[name]})
    if text := query.get("operation"):
        found &= Q(operation__id__startswith=text) | Q(operation__name__icontains=text)
    if kind := query.get("kind"):
        found &= Q(operation__kind=kind)
    if (is_finished := query.get("finished")) is not None:
        has_finished = Q(operation__in=owners().finished())
        found &= has_finished if is_finished else ~has_finished
    if (days := query.get("older_than_days")) is not None:
        found &= Q(created_at__lt=DatabaseNow() - timedelta(days=days))
    return found
