"""What the checkpoints of one owner may take before periodic saving pauses.

Nobody's work is lost for it: the last checkpoint of an attempt is saved whatever the quota says.
"""

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Sum

from apps.checkpoints import services as checkpoints
from apps.checkpoints import sharing
from apps.checkpoints.models import Checkpoint
from apps.operations.models import Operation


class QuotaExceeded(Exception):
    pass


def require(operation: Operation, staged: Mapping[str, Any]) -> None:
    """Raise QuotaExceeded if a periodic checkpoint would take its owner above the quota.

    What counts is what stays: it is committed, and retention asked, in a transaction that is taken
    back.
    """
    quota = settings.THRESHOLDS.checkpoint_quota_bytes
    is_periodic = staged["type"] == Checkpoint.Type.PERIODIC
    if not quota or not is_periodic or operation.owner_id is None:
        return
    with transaction.atomic():
        checkpoints.commit(operation_id=operation.pk, attempt=operation.attempt, staged=staged)
        taken = checkpoints.total_bytes(_of_owner(operation.owner_id))
        taken -= sharing.freed_bytes(checkpoints.expired(operation.pk, **operation.retention))
        transaction.set_rollback(True)
    if taken > quota:
        owner = operation.owner.get_username() if operation.owner else ""
        raise QuotaExceeded(
            f"with it the checkpoints of {owner} would take {taken:,} bytes of the {quota:,} that "
            "they may; periodic saving pauses, and the last one is saved all the same"
        )


def owners_above() -> list[tuple[str, int]]:
    """Return the owners whose checkpoints take nine tenths of the quota or more, and how much."""
    quota = settings.THRESHOLDS.checkpoint_quota_bytes
    if not quota:
        return []
    sums = Checkpoint.objects.exclude(operation__owner=None).values(
        owner=F("operation__owner__username")
    )
    taken = sums.annotate(taken=Sum("counted_size_bytes")).filter(taken__gte=quota * 0.9)
    return list(taken.order_by("owner").values_list("owner", "taken"))


def _of_owner(owner_id: int) -> Any:
    return Checkpoint.objects.filter(operation__owner_id=owner_id)
