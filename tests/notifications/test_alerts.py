"""Alerts follow the committed points of running operations, and are raised once."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.notifications import alerts, services
from apps.notifications.models import Alert, Delivery
from apps.operations.models import Attempt, Event, MetricPoint
from tests.notifications.receiver import ends, made
from tests.operations import rows

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


def points(operation, values, *, name="val_loss", first=1, attempt=1):
    MetricPoint.objects.bulk_create(
        MetricPoint(
            operation=operation, attempt=attempt, name=name, step=step, value=value,
            not_finite="" if value is not None else "nan", at=timezone.now(),
        )
        for step, value in enumerate(values, first)
    )  # fmt: skip


def rule(**fields):
    fields = {"condition": "plateau", "metric": "val_loss", "points": 3} | fields
    return made("https://hooks.example.org/", on_failed=False, **fields)


def events(operation):
    found = Event.objects.filter(operation=operation, what__startswith="ALERT").order_by("pk")
    return [(event.what, event.note) for event in found]


@pytest.fixture
def operation(person):
    return rows.claimed(person)


def test_an_alert_is_raised_once_until_it_ends(operation):
    rule()
    points(operation, [1.0, 0.5, 0.6, 0.6, 0.6])
    for _ in range(2):
        alerts.check_running()
    note = "val_loss is not better for 3 points; best: 0.5 at step 2"
    assert events(operation) == [("ALERT", note)]
    points(operation, [0.6], first=6)
    alerts.check_running()
    assert len(events(operation)) == 1
    points(operation, [0.4], first=7)
    alerts.check_running()
    points(operation, [0.4, 0.4, 0.4], first=8)
    alerts.check_running()
    assert [what for what, _ in events(operation)] == ["ALERT", "ALERT_ENDED", "ALERT"]
    bodies = [each.body for each in Delivery.objects.order_by("pk")]
    assert [(body["event"], body["operation"]["operation_id"]) for body in bodies] == [
        ("ALERT", operation.pk)
    ] * 2


def test_an_operation_that_the_rule_does_not_cover_raises_no_alert(operation):
    rule(kind="rl")
    rule(tag="nightly")
    rule(project="lungs")
    rule(owner="ben")
    rule(is_active=False)
    points(operation, [1.0] * 9)
    alerts.check_running()
    assert events(operation) == [] and not Alert.objects.exists()


def test_points_that_a_resume_retired_do_not_count(operation):
    rule()
    points(operation, [1.0, 0.1, 0.9, 0.8])
    alerts.check_running()
    assert events(operation) == []
    MetricPoint.objects.filter(operation=operation, step__gt=1).update(retired_by=2)
    Attempt.objects.create(operation=operation, number=2, from_step=1)
    points(operation, [0.9, 0.8, 0.7, 0.6], first=2, attempt=2)
    alerts.check_running()
    assert events(operation) == []  # with the retired 0.1 it would be a plateau
    assert Alert.objects.get().state == {"best": 0.6, "step": 5, "since": 0}


def test_the_throughput_of_an_earlier_attempt_does_not_count(operation):
    rule(condition="throughput_halved", metric="", points=2)
    points(operation, [10.0, 10.0], name="system/steps_per_second")
    alerts.check_running()
    Attempt.objects.create(operation=operation, number=2, from_step=2)
    slow = {"name": "system/steps_per_second", "attempt": 2}
    points(operation, [1.0, 1.0], first=3, **slow)
    alerts.check_running()
    assert events(operation) == []
    points(operation, [0.1, 0.1], first=5, **slow)
    alerts.check_running()
    assert [what for what, _ in events(operation)] == ["ALERT"]


def test_the_last_points_are_followed_when_the_operation_ends(operation):
    rule(condition="not_finite", metric="")
    points(operation, [None])
    ends(operation, "FAILED", reason="NON_FINITE_LOSS")
    assert events(operation) == [("ALERT", "not finite: val_loss since step 1")]


def test_a_pass_reads_new_points_only_in_pages(operation, monkeypatch):
    monkeypatch.setattr(alerts, "PAGE", 3)
    monkeypatch.setattr(alerts, "MAX_PAGES", 2)
    rule()
    points(operation, [1.0] * 8)
    alerts.check_running()
    assert events(operation) == []  # 6 of 8 points: not judged before the last one is read
    alerts.check_running()
    assert [what for what, _ in events(operation)] == ["ALERT"]
    with CaptureQueriesContext(
        connection,
    ) as queries:
        alerts.check_running()
    assert not [each for each in queries if each["sql"].startswith("UPDATE")]
    last = MetricPoint.objects.order_by("-pk").values_list("pk", flat=True)[0]
    assert Alert.objects.get().last_point_id == last


@pytest.mark.slow
def test_processes_that_check_at_once_raise_one_alert(operation):
    rule()
    points(operation, [1.0] * 9)

    def check(_):
        try:
            alerts.check_running()
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(check, range(8)))
    assert len(events(operation)) == 1 and Delivery.objects.count() == 1


def test_a_changed_rule_reads_the_points_anew(operation):
    changed = rule()
    points(operation, [1.0, 0.5, 0.6, 0.6, 0.6])
    alerts.check_running()
    services.update(changed, mode="max")
    alerts.check_running()
    assert events(operation)[1:] == [
        ("ALERT", "val_loss is not better for 4 points; best: 1 at step 1")
    ]


@pytest.mark.parametrize(
    "change", [{"condition": "not_finite", "metric": ""}, {"mode": "max"}, {"is_active": False}]
)
def test_a_rule_that_is_changed_during_a_pass_raises_no_alert_by_what_it_was(
    operation, monkeypatch, change
):
    changed = rule()
    points(operation, [1.0, 2.0, 3.0, 4.0])
    check = alerts._check_page

    def check_page(*given):
        monkeypatch.setattr(alerts, "_check_page", check)
        services.update(changed, **change)
        return check(*given)

    monkeypatch.setattr(alerts, "_check_page", check_page)
    alerts.check_running()
    assert events(operation) == [] and not Delivery.objects.exists()
    points(operation, [5.0], first=5)
    alerts.check_running()
    assert events(operation) == []


def test_an_alert_that_was_stored_by_another_condition_is_read_anew(operation):
    """A pass may store it that read the rule before it was changed."""
    changed = rule()
    points(operation, [1.0, 2.0])
    alerts.check_running()
    stored = Alert.objects.values().get()
    services.update(changed, condition="not_finite", metric="")
    Alert.objects.all().delete()
    Alert.objects.create(**stored)
    points(operation, [3.0], first=3)
    alerts.check_running()
    assert events(operation) == []


def test_a_renamed_rule_sends_no_alert_again(operation):
    renamed = rule()
    points(operation, [1.0] * 9)
    alerts.check_running()
    services.update(renamed, name="team", digest_hour=7)
    alerts.check_running()
    assert len(events(operation)) == 1
