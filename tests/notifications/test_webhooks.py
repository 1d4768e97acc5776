"""Webhooks receive what they asked for, signed, again after an error, and only public addresses."""

import hashlib
import hmac
import json
import re
import time
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from apps.notifications import deliveries, sending, services
from apps.notifications.models import Delivery, Rule
from apps.operations import outbox
from tests.notifications.receiver import EVERYWHERE, ends, made, make_due
from tests.operations import rows
from tests.waiting import wait_until
from trainops.http.connections import Reachable, is_allowed
from trainops.notification_settings import NETWORKS, private_networks

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


@pytest.mark.slow
def test_a_failure_is_posted_with_a_signature(receiver, person):
    rule = made(receiver.url("/a?b=1"))
    operation = ends(rows.claimed(person), "FAILED", reason="JOB_ERROR")
    deliveries.send_due_to(rule.pk)
    ((path, headers, body),) = receiver.received
    assert path == "/a?b=1" and headers["Host"].startswith("localhost:")
    signed = headers["X-Trainops-Timestamp"].encode() + b"." + body
    expected = hmac.new(bytes.fromhex(rule.secret), signed, hashlib.sha256).hexdigest()
    assert headers["X-Trainops-Signature"] == expected
    sent = json.loads(body)
    assert (sent["event"], sent["note"]) == ("FAILED", "why")
    assert sent["text"].startswith(f"[trainops] FAILED: {operation.name} · why · ")
    assert sent["text"].endswith(operation.get_absolute_url())
    assert sent["operation"]["operation_id"] == operation.pk
    assert (sent["operation"]["reason"], sent["operation"]["owner"]) == ("JOB_ERROR", "ana")
    delivery = Delivery.objects.get()
    assert (delivery.status, delivery.response_status, delivery.num_tries) == ("delivered", 204, 1)


@pytest.mark.slow
def test_only_what_was_asked_for_is_sent(receiver, person):
    made(receiver.url("/"), "all ends", on_cancelled=True, on_completed=True)
    made(receiver.url("/"), "failures")
    made(receiver.url("/"), "of rl", kind="rl")
    made(receiver.url("/"), "of ben", owner="ben")
    made(receiver.url("/"), "off", is_active=False)
    ends(rows.claimed(person), "COMPLETED")
    ends(rows.claimed(person), "FAILED")
    sent = [(each.rule.name, each.what) for each in Delivery.objects.order_by("pk")]
    assert sent == [("all ends", "COMPLETED"), ("all ends", "FAILED"), ("failures", "FAILED")]


def test_the_reason_is_that_of_the_event_though_the_operation_was_resumed(receiver, person):
    made(receiver.url("/"), "errors", reason="JOB_ERROR")
    made(receiver.url("/"), "losses", reason="NON_FINITE_LOSS")
    operation = rows.claimed(person)
    assert operation.row.move("FAILED", actor="w", reason="JOB_ERROR")
    assert operation.row.move("RESUMING", actor="ana", reason="")
    outbox.deliver()
    delivery = Delivery.objects.get()
    assert delivery.rule.name == "errors"
    assert delivery.body["operation"]["reason"] == "JOB_ERROR"


@pytest.mark.slow
def test_an_event_that_is_delivered_twice_notifies_once(receiver, person):
    made(receiver.url("/"))
    operation = ends(rows.claimed(person), "FAILED")
    for event in operation.events.filter(what="FAILED"):
        services.notify_of(event)
    assert Delivery.objects.count() == 1


@pytest.mark.slow
@pytest.mark.parametrize("status", [500, 404, 302])
def test_an_answer_that_is_no_success_is_tried_again_in_order(receiver, person, status):
    receiver.answers["/"] = status
    rule = made(receiver.url("/"))
    for _ in range(2):
        ends(rows.claimed(person), "FAILED")
    deliveries.send_due_to(rule.pk)
    first, second = Delivery.objects.order_by("pk")
    assert (first.status, first.response_status, first.num_tries) == ("waiting", status, 1)
    assert first.next_at > timezone.now() and second.num_tries == 0
    assert [path for path, *_ in receiver.received] == ["/"], "no redirect is followed"
    receiver.answers.clear()
    make_due()
    deliveries.send_due_to(rule.pk)
    assert {each.status for each in Delivery.objects.all()} == {"delivered"}
    ids = [each["delivery_id"] for each in receiver.bodies]
    assert ids == [first.pk, first.pk, second.pk]


@pytest.mark.slow
def test_after_many_tries_it_is_given_up(receiver, person, monkeypatch):
    monkeypatch.setattr(deliveries, "MAX_TRIES", 2)
    receiver.answers["/"] = 500
    rule = made(receiver.url("/"))
    ends(rows.claimed(person), "FAILED")
    for _ in range(3):
        make_due()
        deliveries.send_due_to(rule.pk)
    delivery = Delivery.objects.get()
    assert (delivery.status, delivery.num_tries, len(receiver.received)) == ("given_up", 2, 2)


@pytest.mark.slow
def test_a_webhook_that_hangs_does_not_delay_others(receiver, person):
    made(receiver.url("/slow"), "slow")
    made(receiver.url("/quick"), "quick")
    receiver.may_answer.clear()
    ends(rows.claimed(person), "FAILED")
    sender = deliveries.Sender()
    sender.send_due()
    quick = Delivery.objects.filter(rule__name="quick", status="delivered")
    wait_until(quick.exists)
    assert Delivery.objects.get(rule__name="slow").status == "waiting"
    sender.send_due()  # it is being sent already
    receiver.may_answer.set()
    wait_until(lambda: not sender._busy)
    assert Delivery.objects.get(rule__name="slow").status == "delivered"
    assert len(receiver.received) == 2


@pytest.mark.slow
def test_what_another_process_sends_is_left_to_it(receiver, person):
    rule = made(receiver.url("/"))
    ends(rows.claimed(person), "FAILED")
    delivery = Delivery.objects.get()
    assert deliveries._claimed(delivery)
    assert not deliveries._claimed(delivery)
    deliveries.send_due_to(rule.pk)
    assert receiver.received == []


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "[::1]", "10.0.0.1", "169.254.169.254", "192.168.1.1"]
)
def test_addresses_inside_the_network_are_refused(settings, host):
    settings.WEBHOOK_PRIVATE_ADDRESSES = ()
    with pytest.raises(sending.NotSent, match="TRAINOPS_WEBHOOK_PRIVATE_ADDRESSES"):
        sending.post(f"http://{host}:9/", b"", {})


@pytest.mark.parametrize(
    ("address", "is_public"),
    [
        ("127.0.0.1", False), ("0.0.0.1", False), ("10.1.2.3", False), ("100.64.0.1", False),
        ("169.254.169.254", False), ("224.0.0.1", False), ("255.255.255.255", False),
        ("::1", False), ("::", False), ("fd00::1", False), ("fec0::1", False), ("ff02::1", False),
        ("fe80::1%eth0", False), ("::ffff:127.0.0.1", False), ("::127.0.0.1", False),
        ("64:ff9b::7f00:1", False), ("2002:7f00:1::", False), ("2001:db8::1", False),
        ("1.1.1.1", True), ("::ffff:1.1.1.1", True), ("2606:4700::1111", True),
    ],
)  # fmt: skip
def test_only_public_addresses_are_allowed(address, is_public):
    assert is_allowed(address, Reachable((), NETWORKS)) == is_public


def test_an_allowed_network_is_reached_and_no_other():
    networks = private_networks({NETWORKS: "10.1.0.0/16, fd00::/8"})
    reachable = Reachable(networks, NETWORKS)
    for address in ("10.1.2.3", "fd00::1", "::ffff:10.1.2.3"):
        assert is_allowed(address, reachable)
    for address in ("10.2.2.3", "127.0.0.1"):
        assert not is_allowed(address, reachable)


def test_a_network_that_is_none_is_refused():
    with pytest.raises(ValueError, match="got 'yes'; allowed: 0, 1 \\(all\\), or networks"):
        private_networks({"TRAINOPS_WEBHOOK_PRIVATE_ADDRESSES": "yes"})


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/slow", "/drip"])
def test_a_target_that_hangs_or_drips_ends_at_the_deadline(receiver, monkeypatch, path):
    monkeypatch.setattr(sending, "TIMEOUT_SECONDS", 0.5)
    receiver.may_answer.clear()
    began = time.monotonic()
    with pytest.raises(sending.NotSent, match="Timeout"):
        sending.post(receiver.url(path), b"{}", {})
    assert time.monotonic() - began < 10


def test_a_huge_response_is_not_read(receiver):
    receiver.answers["/huge"] = 200
    assert sending.post(receiver.url("/huge"), b"{}", {}) == 200


def test_the_documented_check_accepts_the_signature_and_no_other():
    page = Path(__file__).parents[2] / "docs" / "notifications.md"
    names = {}
    exec(re.search(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[1], names)  # noqa: S102 - our own page
    is_genuine = names["is_genuine"]
    secret, body, now = "ab" * 32, b'{"event": "TEST"}', str(int(time.time()))
    signature = sending.signature(secret, now, body)
    assert is_genuine(secret, now, body, signature)
    assert not is_genuine(secret, now, body + b" ", signature)
    assert not is_genuine("cd" * 32, now, body, signature)
    old = str(int(time.time()) - 3600)
    assert not is_genuine(secret, old, body, sending.signature(secret, old, body))


def test_a_host_that_does_not_answer_is_an_error_of_the_delivery(person, settings):
    settings.WEBHOOK_PRIVATE_ADDRESSES = EVERYWHERE
    rule = made("http://localhost:9/")
    ends(rows.claimed(person), "FAILED")
    deliveries.send_due_to(rule.pk)
    delivery = Delivery.objects.get()
    assert (delivery.status, delivery.num_tries) == ("waiting", 1)
    assert "ConnectError" in delivery.error


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"target": "ftp://x/"}, "allowed: http://HOST"),
        ({"target": "x"}, "allowed: http://HOST"),
        ({"target": "https://a:b@x/"}, "Credentials"),
        ({"target": "https://x/", "kind": "rnn"}, "got 'rnn'; allowed: "),
    ],
)
def test_a_webhook_that_cannot_work_is_refused(fields, problem):
    with pytest.raises(ValidationError, match=problem):
        Rule(name="hook", **fields).full_clean()


@pytest.mark.slow
def test_old_deliveries_are_forgotten(receiver, person):
    made(receiver.url("/"))
    for status in ("delivered", "waiting"):
        ends(rows.claimed(person), "FAILED")
        Delivery.objects.filter(status="waiting").update(status=status)
    Delivery.objects.update(created_at=timezone.now() - timedelta(days=31))
    assert deliveries.forget_old() == 1
    assert Delivery.objects.get().status == "waiting"


class TestAdmin:
    @pytest.mark.slow
    def test_an_administrator_adds_one_and_sends_a_test(self, admin_client, receiver):
        page = admin_client.get("/admin/notifications/rule/add/").content.decode()
        assert "Empty: operations of any kind." in page
        given = {
            "name": "chat",
            "target": receiver.url("/"),
            "on_failed": "on",
            "is_active": "on",
            "channel": "webhook",
            "mode": "min",
            "points": 20,
        }
        assert admin_client.post("/admin/notifications/rule/add/", given).status_code == 302
        rule = Rule.objects.get()
        services.test(rule)
        deliveries.send_due_to(rule.pk)
        assert receiver.bodies[0]["event"] == "TEST"
        page = admin_client.get("/admin/notifications/delivery/").content.decode()
        assert "delivered" in page
        page = admin_client.get(f"/admin/notifications/rule/{rule.pk}/change/")
        assert rule.secret in page.content.decode()

    @pytest.mark.parametrize("role", ["viewer", "operator"])
    def test_others_do_not_see_webhooks(self, client, django_user_model, role):
        from django.contrib.auth.models import Group

        user = django_user_model.objects.create_user("x", is_staff=True)
        user.groups.add(Group.objects.get(name=role))
        client.force_login(user)
        assert client.get("/admin/notifications/rule/").status_code == 403
