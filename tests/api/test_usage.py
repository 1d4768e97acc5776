"""The weekly usage report: hours of attempts by project, owner and kind."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from apps.operations.lifecycle import State
from apps.operations.models import Attempt
from apps.workers.usage import _by_week
from tests.api.answers import data
from tests.operations.rows import in_state
from tests.pages import making

pytestmark = pytest.mark.database
MONDAY = datetime(2026, 11, 23, tzinfo=UTC)
HOUR, WEEK = timedelta(hours=1), timedelta(weeks=1)


def attempt(operation, number, started_at, hours, device=""):
    ended_at = None if hours is None else started_at + hours * HOUR
    Attempt.objects.create(
        operation=operation, number=number, worker_id="w", device=device,
        started_at=started_at, ended_at=ended_at,
    )  # fmt: skip


@pytest.fixture
def used(viewer, monkeypatch):
    """Operations of two projects, on Wednesday; return what the report says."""
    monkeypatch.setattr("apps.workers.usage.timezone.now", lambda: MONDAY + 50 * HOUR)
    ana = making.person("ana", "operator")
    vision, speech, none = (in_state(State.COMPLETED) for _ in range(3))
    vision.row.update(project="vision", processes=2, owner=ana)
    speech.row.update(project="speech", owner=ana)
    attempt(vision, 1, MONDAY - 2 * HOUR, 5, "GPU-a,GPU-b")  # over the end of a week
    attempt(vision, 2, MONDAY + 4 * HOUR, 1, "GPU-a,GPU-b")
    attempt(speech, 1, MONDAY + 4 * HOUR, 3)
    attempt(speech, 2, MONDAY - 8 * WEEK - HOUR, WEEK / HOUR)  # over two weeks, one is too old
    attempt(none, 1, MONDAY - 3 * WEEK, 0.5)
    parent = in_state(State.COMPLETED)
    parent.row.update(takes_slot=False, project="vision")
    attempt(parent, 1, MONDAY, 9)

    def report(**query):
        found = data(viewer.get("usage", **query))
        return [
            (each["week"], each["name"], each["num_attempts"],
             round(each["compute_hours"], 6), round(each["gpu_hours"], 6))
            for each in found["rows"]
        ]  # fmt: skip

    return report


def test_hours_are_those_within_each_week_times_processes_and_gpus(used):
    assert used() == [
        ("2026-11-23", "vision", 2, 8.0, 8.0),
        ("2026-11-23", "speech", 1, 3.0, 0.0),
        ("2026-11-16", "vision", 1, 4.0, 4.0),
        ("2026-11-02", "", 1, 0.5, 0.0),
    ]
    assert used(weeks=1) == used()[:2]
    assert used(weeks=9)[-1] == ("2026-09-28", "speech", 1, 167.0, 0.0)


def test_hours_count_for_each_node(used):
    Attempt.objects.filter(operation__project="speech").update(num_nodes=3, device="GPU-a,GPU-b")
    assert used(weeks=1)[0] == ("2026-11-23", "speech", 1, 9.0, 18.0)


def test_the_report_is_by_owner_or_kind_as_well(used):
    assert used(by="owner", weeks=1) == [("2026-11-23", "ana", 3, 11.0, 8.0)]
    assert used(by="kind", weeks=4)[-1] == ("2026-11-02", "training", 1, 0.5, 0.0)


def test_a_running_attempt_counts_until_now(viewer):
    operation = in_state(State.RUNNING)
    now = timezone.now()
    attempt(operation, 1, now - 3 * HOUR, None)
    rows = data(viewer.get("usage"))["rows"]
    assert sum(each["compute_hours"] for each in rows) == pytest.approx(3, abs=0.05)


@pytest.mark.parametrize(
    ("query", "field"), [({"by": "color"}, "by"), ({"weeks": 105}, "weeks"), ({"week": 1}, "week")]
)
def test_a_wrong_query_is_refused_by_its_field(viewer, query, field):
    answer = viewer.get("usage", **query)
    assert answer.status_code == 400
    assert field in answer.json()["error"]["details"]["fields"]


def test_the_number_of_queries_does_not_grow(viewer, used, django_assert_num_queries):
    with django_assert_num_queries(6):  # session, user, role; the three of the report
        viewer.get("usage", weeks=104)


MOMENTS = st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001


@given(start=MOMENTS, end=MOMENTS)
def test_the_parts_of_a_time_are_as_long_as_the_time_and_each_within_its_week(start, end):
    parts = list(_by_week(start, end))
    assert sum((time for _, time in parts), timedelta()) == max(end - start, timedelta())
    assert all(week.weekday() == 0 and timedelta() < time <= WEEK for week, time in parts)
    weeks = [week for week, _ in parts]
    assert weeks == sorted(set(weeks))
