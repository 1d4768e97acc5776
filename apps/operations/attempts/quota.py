"""What the checkpoints of one owner may take before periodic saving pauses.

No work is lost for it: the last checkpoint of an attempt is saved whatever the quota says.
"""

from typing import Any

from django.conf import settings
from django.db.models import F, Sum

from apps.checkpoints import services as checkpoints
from apps.checkpoints import sharing
from apps.checkpoints.models import Checkpoint
from apps.operations.models import Operation
from trainops.runtime.checkpoint.manifest import CheckpointType, StagedCheckpoint


class QuotaExceeded(Exception):
    pass


def require(operation: Operation, staged: StagedCheckpoint) -> None:
    """Raise QuotaExceeded if a periodic checkpoint would take its owner above the quota.

    Counted are the bytes that remain after its commit and after retention.
    """
    quota = settings.THRESHOLDS.checkpoint_quota_bytes
    is_periodic = staged.type is CheckpointType.PERIODIC
    if not quota or not is_periodic or operation.owner_id is None:
        return
    taken = bytes_with(operation, staged)
    if taken > quota:
        owner = operation.owner.get_username() if operation.owner else ""
        raise QuotaExceeded(
            f"with it the checkpoints of {owner} would take {taken:,} bytes of the {quota:,} that "
            "they may; periodic saving pauses, and the last one is saved all the same"
        )


def bytes_with(operation: Operation, staged: StagedCheckpoint) -> int:
    """Return what the checkpoints of an operation's owner take once `staged` is committed."""
    mine = Checkpoint.objects.filter(operation_id=operation.pk)
    going = checkpoints.expired(operation.pk, **operation.retention, upcoming=staged)
    own, known = sharing.files_of_staged(operation.pk, staged), sharing.files(mine)
    freed = sharing.files_of_no_other(going)
    return (
        checkpoints.total_bytes(_of_owner(operation.owner_id))
        + sum(size for name, size in own.items() if name not in known)
        - sum(size for name, size in freed.items() if name not in own)
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


def _of_owner(owner_id: int | None) -> Any:
    return Checkpoint.objects.filter(operation__owner_id=owner_id)
