"""Set and remove shares; each change is an entry of the audit log."""

from django.db import transaction

from apps.operations.models import Share
from trainops.http.access_log import note

LIMITS = ("weight", "max_slots", "max_gpus", "gpu_hours_per_week")


def save(share: Share) -> Share:
    """Store a share that was checked. Raises ValidationError."""
    share.full_clean()
    with transaction.atomic():
        share.save()
        note("share set", share=share, **{name: getattr(share, name) for name in LIMITS})
    return share


def delete(share: Share) -> None:
    """Delete a share: its owner or project has the weight 1 again."""
    with transaction.atomic():
        note("share deleted", share=share)
        share.delete()
