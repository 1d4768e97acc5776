"""Which operations a rule covers, and the body of its notifications."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from django.conf import settings
from django.utils import timezone

from apps.notifications.bodies import DeliveryBody
from apps.notifications.models import Delivery, Rule
from apps.notifications.validation import only_user
from apps.operations.models import Event, Operation
from trainops.http.roles import Role, has_role


def owner_of(operation: Operation) -> str:
    return operation.owner.get_username() if operation.owner else ""


def reason_of(event: Event, operation: Operation) -> str:
    """Return the reason at the event: the operation may have been resumed since."""
    return event.reason or operation.reason  # events of earlier versions have none


def covering(
    rules: Iterable[Rule], operation: Operation, event: Event | None = None
) -> Iterator[Rule]:
    """Yield the rules that cover the operation, which its users may see.

    event: one that is a reason for attention is compared with the rule's reason, too.
    """
    reasons = ["", reason_of(event, operation), event.what] if event else ["", operation.reason]
    tags = set(operation.tags.values_list("name", flat=True))
    owner = owner_of(operation)
    for rule in rules:
        is_wanted = (
            rule.kind in ("", operation.kind)
            and rule.owner in ("", owner)
            and rule.reason in reasons
            and rule.project in ("", operation.project)
            and (not rule.tag or rule.tag in tags)
        )
        if is_wanted and not why_off(rule) and _may_see(rule, operation):
            yield rule


def why_off(rule: Rule) -> str:
    """Return why the rule sends nothing; empty if it is on."""
    if not rule.is_active:
        return "The rule is off."
    if rule.user is None or has_role(rule.user, Role.OPERATOR):
        return ""
    return f"{rule.user.get_username()} is deactivated or no longer an operator."


def _may_see(rule: Rule, operation: Operation) -> bool:
    user = only_user(rule)
    return user is None or operation.owner_id == user.pk


def notify(rule: Rule, event: Event, operation: Operation) -> None:
    """Create the delivery of an event, once: at the hour of the digest, or at once."""
    fields: dict[str, object] = {
        "operation_id": operation.pk,
        "what": event.what,
        "body": _body(event, operation),
    }
    if rule.digest_hour is not None:
        server_zone = timezone.get_default_timezone()  # not that of the reader of a page
        next_at = next_hour(rule.digest_hour, timezone.localtime(timezone=server_zone))
        fields |= {"status": Delivery.Status.COLLECTED, "next_at": next_at}
    Delivery.objects.get_or_create(rule=rule, event_id=event.pk, defaults=fields)


def next_hour(hour: int, now: datetime) -> datetime:
    """Return the next moment after now at which the clock shows that full hour."""
    moment = now.replace(hour=hour, minute=0, second=0, microsecond=0)
    return moment if moment > now else moment + timedelta(days=1)


def _body(event: Event, operation: Operation) -> DeliveryBody:
    return {
        "event": event.what,
        "at": event.at.isoformat(),
        "actor": event.actor,
        "note": event.note,
        "operation": {
            "operation_id": operation.pk,
            "name": operation.name,
            "kind": operation.kind,
            "owner": owner_of(operation),
            "reason": reason_of(event, operation),
            "step": operation.step,
            "total_steps": operation.total_steps,
            "page": settings.PUBLIC_URL + operation.get_absolute_url(),
        },
    }
