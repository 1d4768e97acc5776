"""Set and remove shares; each change is an entry of the audit log."""

from collections.abc import Iterable

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction

from apps.operations.models import Share
from trainops.http.access_log import note

LIMITS = ("weight", "max_slots", "max_gpus", "gpu_hours_per_week")


def save(share: Share, members: Iterable[User]) -> Share:
    """Store a share and the members of its project. Raises ValidationError."""
    users = sorted(members, key=User.get_username)
    share.full_clean()
    require_no_members_of_an_owner(share, users)
    with transaction.atomic():
        share.save()
        share.members.set(users)
        limits = {name: getattr(share, name) for name in LIMITS}
        names = [each.get_username() for each in users]
        note("share set", share=share, **limits, members=",".join(names))
    return share


def require_no_members_of_an_owner(share: Share, members: Iterable[User]) -> None:
    """Raise ValidationError where a share that is of no project has members."""
    if not share.project and (names := [each.get_username() for each in members]):
        raise ValidationError({"members": f"got {', '.join(names)}; allowed: for a project only"})


def delete(share: Share) -> None:
    """Delete a share: its owner or project has the weight 1 again."""
    with transaction.atomic():
        note("share deleted", share=share)
        share.delete()
