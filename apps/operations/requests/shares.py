"""Set and remove shares; each change is an entry of the audit log."""

from collections.abc import Iterable
from datetime import datetime
from typing import TypedDict

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction

from apps.operations.models import Share
from apps.operations.scheduling.shares import Shares, current
from trainops.http.access_log import note


class Use(TypedDict):
    """Of running operations; GPU hours of this week, 0 where no share limits them.

    Hours of a budget are of its period; 0 without one.
    """

    slots: int
    gpus: int
    gpu_hours: float
    budget_gpu_hours: float
    budget_compute_hours: float


class UsedShare(TypedDict):
    """A share, and what is used of it now; None: no limit."""

    share_id: int
    owner: str | None
    project: str
    members_only: bool
    members: list[str]
    preemptible: bool
    weight: float
    max_slots: int | None
    max_gpus: int | None
    gpu_hours_per_week: float | None
    budget_gpu_hours: float | None
    budget_compute_hours: float | None
    budget_period: str
    budget_renewed_at: datetime | None
    max_checkpoint_bytes: int | None
    used: Use


LIMITS = (
    "preemptible",
    "weight",
    "max_slots",
    "max_gpus",
    "gpu_hours_per_week",
    "budget_gpu_hours",
    "budget_compute_hours",
    "budget_period",
    "max_checkpoint_bytes",
)


def save(share: Share, members: Iterable[User]) -> Share:
    """Store a share and the members of its project. Raises ValidationError."""
    users = sorted(members, key=User.get_username)
    share.members_only = share.members_only or bool(users)
    share.full_clean()
    require_project_of_members(share)
    with transaction.atomic():
        share.save()
        share.members.set(users)
        limits = {name: getattr(share, name) for name in LIMITS}
        names = ",".join(each.get_username() for each in users)
        note("share set", share=share, **limits, members_only=share.members_only, members=names)
    return share


def require_project_of_members(share: Share) -> None:
    """Raise ValidationError where a share that is of no project is for members."""
    if share.members_only and not share.project:
        raise ValidationError({"members": "got members of an owner; allowed: of a project"})


def used(share_id: int | None = None) -> list[UsedShare]:
    """Return all shares, or one, and what is used of them now: those of owners first."""
    shares = Share.objects.select_related("owner").prefetch_related("members")
    shares = shares.order_by("project", "owner__username")
    known = current()
    return [
        _used(each, known) for each in (shares if share_id is None else shares.filter(pk=share_id))
    ]


def _used(share: Share, known: Shares) -> UsedShare:
    found = known.owners if share.owner_id else known.projects
    allowance = found.get(share.owner_id or share.project, known.default)
    budget = allowance.budget
    return {
        "share_id": share.pk,
        "owner": share.owner.get_username() if share.owner else None,
        "project": share.project,
        "members_only": share.members_only,
        "members": sorted(each.get_username() for each in share.members.all()),
        "preemptible": share.preemptible,
        "weight": share.weight,
        "max_slots": share.max_slots,
        "max_gpus": share.max_gpus,
        "gpu_hours_per_week": share.gpu_hours_per_week,
        "budget_gpu_hours": share.budget_gpu_hours,
        "budget_compute_hours": share.budget_compute_hours,
        "budget_period": share.budget_period,
        "budget_renewed_at": budget.renewed_at if budget else None,
        "max_checkpoint_bytes": share.max_checkpoint_bytes,
        "used": {
            "slots": allowance.slots,
            "gpus": allowance.gpus,
            "gpu_hours": allowance.gpu_hours,
            "budget_gpu_hours": budget.used_gpu_hours if budget else 0.0,
            "budget_compute_hours": budget.used_compute_hours if budget else 0.0,
        },
    }


def delete(share: Share) -> None:
    """Delete a share: its owner or project has the weight 1 again."""
    with transaction.atomic():
        note("share deleted", share=share)
        share.delete()
