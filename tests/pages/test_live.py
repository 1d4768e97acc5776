"""Responses that pages follow: people share one rendering only where they see the same.

Updates give the same as the request of a page.
"""

import json
import math

import pytest
from django.test import Client
from django.utils import timezone

from apps.dashboard import menu, operation_updates
from apps.dashboard.rows import TIMES
from apps.operations import versions
from apps.operations.models import MetricPoint
from tests.api.saved import saved
from tests.pages import making
from trainops.gateway.live import FOLLOWED

pytestmark = pytest.mark.django_db


def followed(user, path):
    """Return what the gateway learns of a response, and the response."""
    client = Client()
    client.force_login(user)
    response = client.get(path, headers={"Accept": "text/event-stream"})
    assert response.status_code == 200
    return response.wsgi_request.META[FOLLOWED], response


def digests(response):
    return {name: part["digest"] for name, part in response.json()["parts"].items()}


def test_people_of_one_role_share_the_page_of_an_operation_its_owner_does_not(ana, ben, vera, ada):
    operation = making.operation(ana, "RUNNING")
    path = f"/operations/{operation.pk}/live?have=header:&points=0"
    keys = {user.username: followed(user, path)[0].alike for user in (ana, ben, vera, ada)}
    assert len(set(keys.values())) == 4
    carl = making.person("carl", "operator")
    theirs, response = followed(carl, path)
    assert theirs.alike == keys["ben"]
    assert digests(response) == digests(followed(ben, path)[1])


def test_the_time_zone_of_the_reader_keeps_renderings_apart(vera):
    path = f"/operations/{making.operation(vera).pk}/live?have=&points=0"
    client = Client()
    client.force_login(vera)
    client.cookies["time_zone"] = "Asia/Tokyo"
    elsewhere = client.get(path).wsgi_request.META[FOLLOWED].alike
    assert elsewhere != followed(vera, path)[0].alike


def test_a_query_that_follows_asks_for_what_changes_afterwards(ana):
    operation = making.operation(ana, "RUNNING")
    making.curve(operation)
    path = f"/operations/{operation.pk}/live"
    first, response = followed(ana, f"{path}?have=header:,progress:&points=0")
    assert set(response.json()["parts"]) >= {"header", "progress"}
    following, response = followed(ana, f"{path}?{first.query}")
    assert (response.json()["parts"], response.json()["points"]["series"]) == ({}, [])
    assert following == first


def test_lists_are_shared_by_people_without_operations(ana, ben, vera):
    making.operation(ana)
    carl = making.person("carl", "operator")
    keys = {user.username: followed(user, "/operations/live")[0].alike for user in (ana, ben, vera)}
    assert followed(carl, "/operations/live")[0].alike == keys["ben"]
    assert len(set(keys.values())) == 3


def test_the_operations_of_deleted_users_belong_to_no_reader(ana, ben):
    making.operation(ana, "RUNNING", name="orphan")
    ana.delete()
    _, response = followed(ben, "/operations/live?q=owner:me")
    assert response.json()["counts"][""] == "0"


def test_the_list_follows_its_rows_and_filters(ana):
    operation = making.operation(ana, "RUNNING")
    path = "/operations/live?tab=active&rows="
    first, response = followed(ana, f"{path}{operation.pk}:")
    assert operation.pk in response.json()["rows"]
    following, response = followed(ana, f"/operations/live?{first.query}")
    assert (response.json()["rows"], "tab=active" in following.query) == ({}, True)


@pytest.mark.parametrize("name", ["list", "operation", "others"])
def test_the_counts_of_the_menu_are_followed(ana, name):
    operation = making.operation(ana, "RUNNING")
    making.operation(ana, "FAILED")
    making.operation(ana, "FAILED")
    path = {
        "list": "/operations/live",
        "operation": f"/operations/{operation.pk}/live?have=&points=0",
        "others": "/menu/counts",
    }[name]
    given = followed(ana, path)[1].json()
    counts = given if name == "others" else given["menu"]
    assert counts == {"active": 1, "attention": 2, "workers": 0}


def point(operation, value, name="val_loss", step=30, **fields):
    finite = math.isfinite(value)
    MetricPoint.objects.create(
        operation=operation, attempt=1, name=name, step=step, at=timezone.now(),
        value=value if finite else None, not_finite="" if finite else str(value), **fields,
    )  # fmt: skip


PROGRESS = {
    "step": lambda it: it.row.update(step=31, place="4 of 5 epochs", progressed_at=timezone.now()),
    "better": lambda it: (point(it, 0.01), it.row.update(metrics={"val_loss": 0.01})),
    "equal, later": lambda it: point(it, 0.125),
    "worse": lambda it: point(it, 9.0),
    "not finite": lambda it: (point(it, math.nan), point(it, math.inf, step=31)),
    "another metric": lambda it: point(it, 0.001, "val_accuracy"),
    "log": lambda it: making.log(it, "a line\n"),
    "attempt": lambda it: (
        it.row.update(step=33), it.attempts.filter(number=1).update(to_step=33)
    ),
    "quiet no longer": lambda it: it.row.update(progressed_at=timezone.now()),
    "nothing": lambda it: None,
}  # fmt: skip


def steady(answer):
    """Return an answer without what its times say, which another second may change."""
    parts = {name: TIMES.sub("", part["html"]) for name, part in answer["parts"].items()}
    return {**answer, "parts": parts}


@pytest.mark.parametrize("kind", ["training", "backtest", "rl"])
@pytest.mark.parametrize("change", PROGRESS)
def test_an_update_is_what_the_request_of_the_page_would_answer(ana, ben, change, kind):
    long_ago = timezone.now() - timezone.timedelta(hours=1)
    operation = making.operation(ana, "RUNNING", kind=kind, progressed_at=long_ago)
    making.attempt(operation)
    making.curve(operation)
    saved(operation)
    for reader in (ana, ben):  # its owner, and another person
        before, _ = followed(reader, f"/operations/{operation.pk}/live?have=&points=0")
        PROGRESS[change](operation)
        progress = versions.current([before.topic])[before.topic].progress
        [update] = operation_updates.current([(before.page, progress)])
        expected, response = followed(reader, f"/operations/{operation.pk}/live?{before.query}")
        assert steady(json.loads(update.body)) == steady(response.json())
        assert update.query == expected.query
        assert update.page.bests == expected.page.bests
        MetricPoint.objects.filter(operation=operation, step__gt=20).delete()


def test_updates_take_as_many_queries_for_many_pages_as_for_one(
    ana, vera, django_assert_num_queries, monkeypatch
):
    monkeypatch.setattr(menu, "SECONDS", 1000)  # the counts of the menu are remembered
    found = []
    for number in range(5):
        operation = making.operation(ana, "RUNNING", name=f"number {number}")
        making.attempt(operation)
        for reader in (ana, vera):
            each, _ = followed(reader, f"/operations/{operation.pk}/live?have=&points=0")
            found.append((each.page, versions.current([each.topic])[each.topic].progress))
    with django_assert_num_queries(4):  # operations, attempts, checkpoints, points
        assert None not in operation_updates.current(found)
    with django_assert_num_queries(4):
        operation_updates.current(found[:1])


def test_updates_leave_what_does_not_run_and_what_measured_much_to_the_request(ana, monkeypatch):
    ended, running = (making.operation(ana, "RUNNING", name=name) for name in ("one", "other"))
    asked = []
    for operation in (ended, running):
        each, _ = followed(ana, f"/operations/{operation.pk}/live?have=&points=0")
        asked.append((each.page, versions.current([each.topic])[each.topic].progress))
    ended.row.update(state="COMPLETED", finished_at=timezone.now())
    assert [each is None for each in operation_updates.current(asked)] == [True, False]
    making.curve(running, last=20)
    monkeypatch.setattr("apps.operations.points.metric_queries.MAX_POINTS_AFTER", 5)
    assert operation_updates.current(asked) == [None, None]
