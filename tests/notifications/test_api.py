"""Rules and deliveries over HTTP, for their users and admins."""

import pytest
from django.core.exceptions import ValidationError

from apps.notifications import deliveries, services
from apps.notifications.models import Delivery, Rule
from tests.api.conftest import signed_in
from tests.notifications.receiver import ends, made
from tests.operations import rows
from trainops.errors import DomainError

pytestmark = pytest.mark.django_db(transaction=True)
RULES, DELIVERIES = "notifications/rules", "notifications/deliveries"
GIVEN = {"name": "chat", "target": "https://hooks.example.org/a", "on_failed": True}


@pytest.fixture
def otto(db):
    return signed_in("otto", "operator")


@pytest.fixture
def carla(db):
    return signed_in("carla", "operator")


@pytest.fixture
def ada(db):
    return signed_in("ada", "admin")


def patch(api, path, body):
    return api.client.patch(f"/api/v1/{path}", body, content_type="application/json")


def test_an_operator_creates_changes_and_deletes_a_rule(otto):
    response = otto.post(RULES, GIVEN)
    rule = response.json()["data"]
    assert response.status_code == 201 and response["Location"].endswith(str(rule["rule_id"]))
    assert (rule["user"], rule["owner"], len(rule["secret"])) == ("otto", "otto", 64)
    assert rule["on_failed"] and not rule["on_completed"]
    path = f"{RULES}/{rule['rule_id']}"
    assert patch(otto, path, {"on_completed": True, "tag": "x"}).json()["data"]["on_failed"]
    stored = Rule.objects.get()
    assert (stored.on_completed, stored.tag) == (True, "x")
    assert otto.get(path).json()["data"]["tag"] == "x"
    assert otto.delete(path).status_code == 200 and not Rule.objects.exists()


def test_rules_of_others_are_seen_by_admins_only(otto, carla, ada):
    rule_id = otto.post(RULES, GIVEN).json()["data"]["rule_id"]
    assert carla.get(RULES).json()["data"] == []
    for response in (
        carla.get(f"{RULES}/{rule_id}"),
        carla.delete(f"{RULES}/{rule_id}"),
        carla.post(f"{RULES}/{rule_id}/test"),
    ):
        assert response.status_code == 404
        assert response.json()["error"]["code"] == "RULE_NOT_FOUND"
    assert [each["rule_id"] for each in ada.get(RULES).json()["data"]] == [rule_id]


def test_viewers_have_no_rules(db):
    vera = signed_in("vera", "viewer")
    assert vera.get(RULES).status_code == 403
    assert vera.post(RULES, GIVEN).status_code == 403


@pytest.mark.parametrize(
    ("change", "field", "problem"),
    [
        ({"target": "ftp://x/"}, "target", "allowed: http://HOST"),
        ({"target": "http://[::1/"}, "target", "allowed: http://HOST"),
        ({"target": "http://x:99999/"}, "target", "allowed: http://HOST"),
        ({"owner": ""}, "owner", "got 'operations of anyone'; allowed: 'otto'"),
        ({"owner": "carla"}, "owner", "got 'carla'; allowed: 'otto'"),
        ({"kind": "rnn"}, "kind", "got 'rnn'; allowed: "),
        ({"reason": "WEATHER"}, "reason", "got 'WEATHER'; allowed: "),
        ({"digest_hour": 24}, "digest_hour", "got 24; allowed: 0 to 23"),
        ({"condition": "plateau"}, "metric", "allowed: the name of a metric"),
        ({"points": 0}, "points", "got 0; allowed: 1 to 1000"),
        ({"on_failed": False}, "on_failed", "Nothing would be sent"),
        ({"channel": "mail", "target": "a@example.org"}, "channel", "TRAINOPS_MAIL_URL"),
        ({"colour": "red"}, "colour", "unknown field; allowed: name"),
    ],
)  # fmt: skip
def test_a_field_that_is_not_allowed_is_named(otto, change, field, problem):
    response = otto.post(RULES, GIVEN | change)
    assert response.status_code == 400
    assert problem in response.json()["error"]["details"]["fields"][field]
    assert not Rule.objects.exists()


def test_operators_send_mail_to_their_own_address_only(otto, ada, settings):
    settings.EMAIL_HOST = "mail.example.org"
    otto.user.email = "otto@example.org"
    otto.user.save()
    mail = GIVEN | {"channel": "mail", "target": "carla@example.org"}
    problem = otto.post(RULES, mail).json()["error"]["details"]["fields"]["target"]
    assert problem == "got 'carla@example.org'; allowed: otto@example.org"
    assert otto.post(RULES, mail | {"target": "otto@example.org"}).status_code == 201
    assert ada.post(RULES, mail).status_code == 201


def test_a_rule_covers_what_its_user_may_see_when_it_is_sent(otto, carla, ada):
    mine = otto.post(RULES, GIVEN).json()["data"]["rule_id"]
    every = ada.post(RULES, GIVEN).json()["data"]["rule_id"]
    ends(rows.claimed(carla.user), "FAILED")
    assert list(Delivery.objects.values_list("rule", flat=True)) == [every]
    ends(rows.claimed(otto.user), "FAILED")
    assert Delivery.objects.filter(rule=mine).count() == 1
    ada.user.groups.clear()  # no longer an admin
    otto.user.is_active = False
    otto.user.save()
    ends(rows.claimed(otto.user), "FAILED")
    assert Delivery.objects.count() == 3


def test_the_number_of_rules_is_limited(otto, monkeypatch):
    monkeypatch.setattr(services, "MAX_RULES", 1)
    assert otto.post(RULES, GIVEN).status_code == 201
    response = otto.post(RULES, GIVEN)
    assert (response.status_code, response.json()["error"]["code"]) == (409, "LIMIT_REACHED")


@pytest.mark.slow
def test_a_delivery_that_was_given_up_is_sent_again(otto, carla, receiver, monkeypatch):
    monkeypatch.setattr(deliveries, "MAX_TRIES", 1)
    receiver.answers["/"] = 500
    rule = made(receiver.url("/"), user=otto.user, owner="otto")
    delivery_id = otto.post(f"{RULES}/{rule.pk}/test").json()["data"]["delivery_id"]
    deliveries.send_due_to(rule.pk)
    (row,) = otto.get(DELIVERIES, status="given_up").json()["data"]
    assert (row["delivery_id"], row["response_status"]) == (delivery_id, 500)
    assert carla.get(DELIVERIES).json()["data"] == []
    assert carla.post(f"{DELIVERIES}/{delivery_id}/retry").status_code == 404
    receiver.answers.clear()
    assert otto.post(f"{DELIVERIES}/{delivery_id}/retry").json()["data"]["status"] == "waiting"
    deliveries.send_due_to(rule.pk)
    assert Delivery.objects.get().status == "delivered"
    response = otto.post(f"{DELIVERIES}/{delivery_id}/retry")
    assert response.status_code == 409
    assert (
        "got status delivered; allowed: waiting, given_up, dropped"
        in response.json()["error"]["message"]
    )


def test_an_edit_keeps_what_another_request_has_changed(otto):
    rule_id = otto.post(RULES, GIVEN).json()["data"]["rule_id"]
    first, second = (services.get(rule_id, otto.user) for _ in range(2))
    services.update(first, is_active=False)
    assert services.update(second, name="team").is_active is False
    stored = Rule.objects.get()
    assert (stored.name, stored.is_active) == ("team", False)


def test_an_edit_is_validated_with_what_another_request_has_changed(otto):
    rule_id = otto.post(RULES, GIVEN | {"metric": "val_loss"}).json()["data"]["rule_id"]
    first, second = (services.get(rule_id, otto.user) for _ in range(2))
    services.update(first, metric="")
    with pytest.raises(ValidationError, match="the name of a metric"):
        services.update(second, condition="plateau")
    assert Rule.objects.get().condition == ""


def test_an_edit_of_a_rule_that_was_deleted_is_refused(otto):
    rule = services.get(otto.post(RULES, GIVEN).json()["data"]["rule_id"], otto.user)
    Rule.objects.all().delete()
    with pytest.raises(DomainError, match="You have no notification rule"):
        services.update(rule, name="team")
    assert not Rule.objects.exists()
