"""Digests: what a rule collected becomes one delivery at its hour."""

from collections import Counter
from typing import TYPE_CHECKING

from django.db import transaction

from apps.notifications import matching
from apps.notifications.models import Delivery, Rule
from trainops.clock import DatabaseNow

if TYPE_CHECKING:
    from apps.notifications.bodies import DeliveryBody

MAX_ITEMS = 100  # the latest notifications of a digest; all are counted
WHAT = "DIGEST"


def create_due() -> None:
    """Create the digests that are due; any number of processes may call it at once."""
    due = Delivery.objects.filter(status=Delivery.Status.COLLECTED, next_at__lte=DatabaseNow())
    for rule_id in due.order_by().values_list("rule_id", flat=True).distinct():
        _create(rule_id)


def _create(rule_id: int) -> None:
    with transaction.atomic():
        rule = Rule.objects.select_for_update().filter(pk=rule_id).first()
        if rule is None:
            return
        collected = Delivery.objects.filter(rule=rule, status=Delivery.Status.COLLECTED)
        due = collected.filter(next_at__lte=DatabaseNow())
        if why := matching.why_off(rule):
            due.update(status=Delivery.Status.DROPPED, error=why)
            return
        ids = list(due.values_list("pk", flat=True))
        if not ids:
            return  # another process created it
        included = Delivery.objects.filter(pk__in=ids)
        counts = Counter(included.values_list("what", flat=True))
        latest = included.order_by("-pk").values_list("body", flat=True)[:MAX_ITEMS]
        body: DeliveryBody = {
            "event": WHAT,
            "counts": dict(counts),
            "notifications": list(reversed(latest)),
        }
        included.update(status=Delivery.Status.IN_DIGEST)
        Delivery.objects.create(rule=rule, what=WHAT, body=body)
