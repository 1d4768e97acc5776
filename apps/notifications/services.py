"""Rules: created, changed, tested and deleted here, by whatever endpoint or page; and events."""

from collections.abc import Collection
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet

from apps.notifications import alerts, matching
from apps.notifications.models import Delivery, Rule
from apps.operations.attempts.selfchecks import EVENTS
from apps.operations.attention import BAD_CHECKS, CONCERNS
from apps.operations.lifecycle import State
from apps.operations.models import Event, Operation
from trainops.clock import DatabaseNow
from trainops.errors import DomainError
from trainops.http.roles import Role, has_role
from trainops.http.users import former_username

MAX_RULES = 100  # of one user
EVENT_FIELDS: dict[str, str] = {
    State.FAILED: "on_failed",
    State.CANCELLED: "on_cancelled",
    State.COMPLETED: "on_completed",
    **{EVENTS[each]: "on_attention" for each in BAD_CHECKS},
    **dict.fromkeys(CONCERNS, "on_attention"),
}


def notify_of(event: Event) -> None:
    """Subscriber: create the deliveries of an event. There are none for subtasks."""
    operations = Operation.objects.filter(pk=event.operation_id, subtask=None)
    operation = operations.select_related("owner").first()
    if operation is None:
        return
    wanted = Rule.objects.filter(is_active=True, **{EVENT_FIELDS[event.what]: True})
    for rule in matching.covering(wanted.select_related("user"), operation, event):
        matching.notify(rule, event, operation)
    if operation.is_finished:
        alerts.check_operation(operation)


def visible_to(user: User) -> QuerySet[Rule]:
    """Return all rules for admins, else the user's own."""
    rules = Rule.objects.select_related("user")
    return rules if has_role(user, Role.ADMIN) else rules.filter(user=user)


def get(rule_id: int, user: User) -> Rule:
    """Return a rule that the user may change. Raises DomainError."""
    rule = visible_to(user).filter(pk=rule_id).first()
    if rule is None:
        raise _not_found(rule_id)
    return rule


def _not_found(rule_id: int) -> DomainError:
    message = f"You have no notification rule {rule_id}."
    return DomainError("RULE_NOT_FOUND", message, {"rule_id": rule_id}, status=404)


def create(user: User, **fields: Any) -> Rule:
    """Create a rule of a user. Raises ValidationError, DomainError."""
    if Rule.objects.filter(user=user).count() >= MAX_RULES:
        message = f"Too many notification rules: got 1 more; allowed: {MAX_RULES}. Delete some."
        raise DomainError("LIMIT_REACHED", message, {"allowed": MAX_RULES}, status=409)
    if not has_role(user, Role.ADMIN):
        fields.setdefault("owner", user.get_username())
    return save(Rule(user=user, **fields))


def update(rule: Rule, **fields: Any) -> Rule:
    """Change these fields of a rule and no others. Raises ValidationError, DomainError."""
    rule_id = rule.pk
    with transaction.atomic():
        try:
            rule.refresh_from_db(from_queryset=Rule.objects.select_for_update())
        except Rule.DoesNotExist:
            raise _not_found(rule_id) from None
        for name, value in fields.items():
            setattr(rule, name, value)
        _validate(rule)
        rule.save(update_fields=fields)
    return rule


def save(rule: Rule) -> Rule:
    """Validate and store a new rule. Raises ValidationError."""
    _validate(rule)
    rule.save()
    return rule


def _validate(rule: Rule) -> None:
    rule.full_clean(exclude=["user", "secret"])


def user_saved(instance: User, update_fields: Collection[str] | None, **_: object) -> None:
    """Receiver of `pre_save`: rules for operations of a user follow a new username."""
    if former := former_username(instance, update_fields):
        Rule.objects.filter(owner=former).update(owner=instance.username)


def test(rule: Rule) -> Delivery:
    """Create a delivery that says that it is a test. Raises DomainError if the rule is off."""
    _require_on(rule)
    return Delivery.objects.create(rule=rule, what="TEST", body={"event": "TEST"})


def _require_on(rule: Rule) -> None:
    if why := matching.why_off(rule):
        message = f"Rule {rule.name} sends nothing: {why}"
        raise DomainError("RULE_IS_OFF", message, {"rule_id": rule.pk}, status=409)


def deliveries_of(user: User) -> QuerySet[Delivery]:
    """Return the deliveries of the rules that are visible to the user."""
    return Delivery.objects.filter(rule__in=visible_to(user)).select_related("rule__user")


def retry(delivery_id: int, user: User) -> Delivery:
    """Send a delivery again at once, with all of its tries. Raises DomainError."""
    delivery = deliveries_of(user).filter(pk=delivery_id).first()
    if delivery is None:
        message = f"You have no delivery {delivery_id}."
        raise DomainError("DELIVERY_NOT_FOUND", message, {"delivery_id": delivery_id}, status=404)
    _require_on(delivery.rule)
    row = Delivery.objects.filter(pk=delivery.pk, status__in=Delivery.UNDELIVERED)
    waiting = {"status": Delivery.Status.WAITING, "num_tries": 0, "next_at": DatabaseNow()}
    if not row.update(**waiting):
        allowed = ", ".join(Delivery.UNDELIVERED)
        message = f"Delivery {delivery_id}: got status {delivery.status}; allowed: {allowed}."
        raise DomainError("DELIVERY_NOT_RETRIED", message, {"status": delivery.status}, status=409)
    delivery.refresh_from_db()
    return delivery
