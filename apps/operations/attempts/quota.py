"""What the checkpoints of an owner or a project may take before periodic saving pauses.

No work is lost for it: the last checkpoint of an attempt is saved whatever the quota says.
"""

from collections.abc import Iterator

from django.conf import settings
from django.db.models import Q, Sum

from apps.checkpoints import services as checkpoints
from apps.checkpoints import sharing
from apps.checkpoints.models import Checkpoint
from apps.operations.models import Operation, Share
from trainops.runtime.checkpoint.manifest import CheckpointType, StagedCheckpoint


class QuotaExceeded(Exception):
    pass


def require(operation: Operation, staged: StagedCheckpoint) -> None:
    """Raise QuotaExceeded if a periodic checkpoint would take its owner or project above a quota.

    Counted are the bytes that remain after its commit and after retention.
    """
    if staged.type is not CheckpointType.PERIODIC:
        return
    for name, quota, of_share in _quotas(operation):
        taken = bytes_with(operation, staged, of_share)
        if taken > quota:
            raise QuotaExceeded(
                f"with it the checkpoints of {name} would take {taken:,} bytes of the {quota:,} "
                "that they may; periodic saving pauses, and the last one is saved all the same"
            )


def _quotas(operation: Operation) -> Iterator[tuple[str, int, Q]]:
    """Yield the names, quotas and operations of the owner and the project of an operation."""
    project = operation.row.values_list("project", flat=True).get()  # an edit may have moved it
    shares = Share.objects.filter(max_checkpoint_bytes__isnull=False).select_related("owner")
    quotas: dict[int | str | None, Share] = {each.owner_id or each.project: each for each in shares}
    default = settings.THRESHOLDS.checkpoint_quota_bytes
    if operation.owner is not None:
        name, share = operation.owner.get_username(), quotas.get(operation.owner_id)
        quota = share.max_checkpoint_bytes if share else default or None
        if quota is not None:
            yield name, quota, Q(operation__owner=operation.owner_id)
    if project and (share := quotas.get(project)) and share.max_checkpoint_bytes is not None:
        yield str(share), share.max_checkpoint_bytes, Q(operation__project=project)


def bytes_with(operation: Operation, staged: StagedCheckpoint, of_share: Q) -> int:
    """Return what the checkpoints of an owner or project take once `staged` is committed."""
    mine = Checkpoint.objects.filter(operation_id=operation.pk)
    going = checkpoints.expired(operation.pk, **operation.retention, upcoming=staged)
    own, known = sharing.files_of_staged(operation.pk, staged), sharing.files(mine)
    freed = sharing.files_of_no_other(going)
    return (
        checkpoints.total_bytes(Checkpoint.objects.filter(of_share))
        + sum(size for name, size in own.items() if name not in known)
        - sum(size for name, size in freed.items() if name not in own)
    )


def above() -> list[tuple[str, int, int]]:
    """Return the owners and projects whose checkpoints take nine tenths of their quota or more.

    Each with what they take, and the quota.
    """
    shares = Share.objects.filter(max_checkpoint_bytes__isnull=False).select_related("owner")
    quotas = {str(each): each.max_checkpoint_bytes or 0 for each in shares}
    default = settings.THRESHOLDS.checkpoint_quota_bytes
    if not quotas and not default:
        return []
    taken: dict[str, int] = {}
    projects = [each.project for each in shares if each.project]
    owners = [each.owner_id for each in shares if each.owner_id is not None]
    of_owners = Q(operation__owner__isnull=False) if default else Q(operation__owner__in=owners)
    for column, prefix, of_shares in (
        ("operation__owner__username", "", of_owners),
        ("operation__project", "project ", Q(operation__project__in=projects)),
    ):
        sums = Checkpoint.objects.filter(of_shares).order_by().values_list(column)
        for name, size in sums.annotate(taken=Sum("counted_size_bytes")):
            taken[f"{prefix}{name}"] = size
    found = [(name, size, quotas.get(name, default)) for name, size in sorted(taken.items())]
    return [(name, size, quota) for name, size, quota in found if size >= quota * 0.9]
