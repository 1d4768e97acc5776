"""The page of notification rules: create, change, test, delete, retry."""

import pytest

from apps.dashboard.rule_form import RuleForm
from apps.notifications.models import Delivery, Rule

GIVEN = {
    "name": "chat", "channel": "webhook", "target": "https://hooks.example.org/a",
    "on_failed": "on",
    "mode": "min", "points": "20", "is_active": "on",
}  # fmt: skip


@pytest.fixture
def rule(ana):
    target = "https://hooks.example.org/a"
    return Rule.objects.create(name="chat", target=target, user=ana, owner="ana")


def test_an_operator_creates_a_rule_for_own_operations(page, ana):
    response = page.post("/notifications/", GIVEN | {"owner": "ben", "tag": "nightly"})
    rule = Rule.objects.get()
    assert response.url == f"/notifications/{rule.pk}/"
    assert (rule.user, rule.owner, rule.tag, rule.on_failed) == (ana, "ana", "nightly", True)
    text = page.get("/notifications/").content.decode()
    assert "nightly" in text and 'data-testid="rule"' in text
    assert rule.secret in page.get(response.url).content.decode()


def test_an_admin_creates_a_rule_for_all(as_, ada):
    as_(ada).post("/notifications/", GIVEN)
    assert Rule.objects.get().owner == ""


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("target", "ftp://x/", "allowed: http://HOST"),
        ("points", "0", "got 0; allowed: 1 to 1000"),
        ("digest_hour", "24", "got 24; allowed: 0 to 23"),
        ("condition", "plateau", "allowed: the name of a metric"),
        ("channel", "mail", "TRAINOPS_MAIL_URL"),
    ],
)
def test_a_wrong_field_is_named_beside_it(page, field, value, problem):
    response = page.post("/notifications/", GIVEN | {field: value})
    assert response.status_code == 422
    text = response.content.decode()
    assert problem in text and 'data-testid="field-error"' in text
    assert not Rule.objects.exists()


def test_a_rule_is_changed(page, rule):
    page.post(f"/notifications/{rule.pk}/", GIVEN | {"name": "team", "on_completed": "on"})
    changed = Rule.objects.get()
    assert (changed.name, changed.on_completed, changed.secret) == ("team", True, rule.secret)


def test_a_rule_is_tested_its_delivery_retried_and_the_rule_deleted(page, rule):
    assert page.post(f"/notifications/{rule.pk}/test").status_code == 302
    delivery = Delivery.objects.get()
    Delivery.objects.update(status="given_up", num_tries=30, error="ConnectError: refused")
    text = page.get("/notifications/").content.decode()
    assert "ConnectError: refused" in text and 'data-testid="retry"' in text
    page.post(f"/notifications/deliveries/{delivery.pk}/retry")
    delivery.refresh_from_db()
    assert (delivery.status, delivery.num_tries) == ("waiting", 0)
    page.post(f"/notifications/{rule.pk}/delete")
    assert not Rule.objects.exists()
    assert page.post(f"/notifications/{rule.pk}/vanish").status_code == 404


def test_others_do_not_see_a_rule(as_, ben, vera, rule):
    for person in (ben, vera):
        client = as_(person)
        assert 'data-testid="rule"' not in client.get("/notifications/").content.decode()
        assert client.get(f"/notifications/{rule.pk}/").status_code in (403, 404)
        assert client.post(f"/notifications/{rule.pk}/delete").status_code in (403, 404)
    as_(vera).post("/notifications/", GIVEN)
    assert Rule.objects.count() == 1


def test_a_rule_that_is_off_is_not_tested_and_its_dropped_deliveries_offer_a_retry(page, rule):
    delivery = Delivery.objects.create(rule=rule, what="FAILED", body={}, status="dropped")
    assert 'data-testid="retry"' in page.get("/notifications/").content.decode()
    Rule.objects.update(is_active=False)
    for action in (f"{rule.pk}/test", f"deliveries/{delivery.pk}/retry"):
        response = page.post(f"/notifications/{action}", headers={"X-Requested-With": "fetch"})
        assert response.status_code == 409
        assert response.json()["message"] == "Rule chat sends nothing: The rule is off."


def test_a_form_writes_the_fields_that_it_changes_and_no_others(page, rule, monkeypatch):
    is_valid = RuleForm.is_valid

    def valid(form):
        Rule.objects.update(tag="nightly")  # by another request
        return is_valid(form)

    monkeypatch.setattr(RuleForm, "is_valid", valid)
    page.post(f"/notifications/{rule.pk}/", GIVEN | {"name": "team"})
    changed = Rule.objects.get()
    assert (changed.name, changed.tag) == ("team", "nightly")
