"""Rules that are off, and rules of accounts that may have none, send nothing."""

import pytest

from apps.notifications import deliveries, digests, services
from apps.notifications.models import Delivery, Rule
from tests.api.conftest import signed_in
from tests.notifications.receiver import made, make_due
from trainops.errors import DomainError

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database, pytest.mark.slow]


@pytest.fixture
def rule(receiver):
    otto = signed_in("otto", "operator").user
    return made(receiver.url("/"), user=otto, owner="otto")


def switch_off(rule):
    services.update(rule, is_active=False)


def deactivate(rule):
    rule.user.is_active = False
    rule.user.save()


def leave_the_role(rule):
    rule.user.groups.clear()


WAYS = pytest.mark.parametrize(
    ("turn_off", "error"),
    [
        (switch_off, "The rule is off."),
        (deactivate, "otto is deactivated or no longer an operator."),
        (leave_the_role, "otto is deactivated or no longer an operator."),
    ],
)


@WAYS
def test_a_rule_that_is_off_drops_waiting_deliveries(receiver, rule, turn_off, error):
    services.test(rule)
    turn_off(rule)
    deliveries.send_due_to(rule.pk)
    delivery = Delivery.objects.get()
    assert (delivery.status, delivery.error, receiver.received) == ("dropped", error, [])


@WAYS
def test_a_rule_that_is_off_creates_no_digest(rule, turn_off, error):
    Delivery.objects.create(rule=rule, what="FAILED", body={}, status="collected")
    turn_off(rule)
    digests.create_due()
    delivery = Delivery.objects.get()
    assert (delivery.status, delivery.error) == ("dropped", error)


@WAYS
def test_a_rule_that_is_off_refuses_tests_and_retries(rule, turn_off, error):
    ada = signed_in("ada", "admin").user
    delivery = services.test(rule)
    turn_off(rule)
    rule = Rule.objects.get()
    for refused in (lambda: services.test(rule), lambda: services.retry(delivery.pk, ada)):
        with pytest.raises(DomainError, match=f"Rule hook sends nothing: {error}") as raised:
            refused()
        assert (raised.value.code, raised.value.status) == ("RULE_IS_OFF", 409)
    assert Delivery.objects.count() == 1


def test_a_dropped_delivery_is_sent_by_a_retry_when_the_rule_is_on_again(receiver, rule):
    delivery = services.test(rule)
    switch_off(rule)
    deliveries.send_due_to(rule.pk)
    services.update(rule, is_active=True)
    deliveries.send_due_to(rule.pk)
    assert receiver.received == []
    services.retry(delivery.pk, rule.user)
    deliveries.send_due_to(rule.pk)
    assert [body["event"] for body in receiver.bodies] == ["TEST"]


def test_a_rule_that_is_switched_off_between_two_deliveries_drops_the_second(
    receiver, rule, monkeypatch
):
    for _ in range(2):
        services.test(rule)
    sent = deliveries._sent
    monkeypatch.setattr(
        deliveries, "_sent", lambda delivery: (sent(delivery), switch_off(delivery.rule))[0]
    )
    deliveries.send_due_to(rule.pk)
    statuses = Delivery.objects.order_by("pk").values_list("status", flat=True)
    assert list(statuses) == ["delivered", "dropped"] and len(receiver.received) == 1


def test_due_tries_of_a_rule_that_is_off_are_dropped_and_not_counted(receiver, rule):
    services.test(rule)
    receiver.answers["/"] = 500
    deliveries.send_due_to(rule.pk)
    switch_off(rule)
    make_due()
    deliveries.send_due_to(rule.pk)
    delivery = Delivery.objects.get()
    assert (delivery.status, delivery.num_tries, len(receiver.received)) == ("dropped", 1, 1)
