"""Curves, logs, events, attempts, and the live view."""

import csv
import io

import pytest
from django.utils import timezone

from apps.operations.models import Attempt, LogChunk, MetricPoint
from apps.operations.points import points_csv
from tests.api.answers import data, error
from tests.operations import rows
from tests.operations.rows import claimed


@pytest.fixture
def operation(operator):
    return claimed(operator.user)


def measured(operation, steps, name="loss", attempt=1, value=float, **more):
    MetricPoint.objects.bulk_create(
        MetricPoint(
            operation_id=operation.pk, attempt=attempt, name=name, step=step,
            value=value(step), at=timezone.now(), **more,
        )
        for step in steps
    )  # fmt: skip


def printed(operation, *texts, attempt=1):
    for text in texts:
        LogChunk.objects.create(operation_id=operation.pk, attempt=attempt, text=text)


def test_curves_are_distinguished_by_metric_attempt_and_whether_they_count(operator, operation):
    measured(operation, range(1, 4))
    measured(operation, range(1, 3), name="accuracy")
    rows.retire(operation, by=2, after_step=2)
    measured(operation, range(3, 5), attempt=2)
    curves = data(operator.get(f"operations/{operation.pk}/metrics"))
    found = [(c["name"], c["attempt"], c["retired_by"], c["steps"]) for c in curves["series"]]
    assert found == [
        ("accuracy", 1, None, [1, 2]),
        ("loss", 1, None, [1, 2]),
        ("loss", 1, 2, [3]),
        ("loss", 2, None, [3, 4]),
    ]
    only = data(operator.get(f"operations/{operation.pk}/metrics", name="accuracy", attempt=1))
    assert [c["name"] for c in only["series"]] == ["accuracy"]


def test_the_first_points_are_complete_and_reading_on_gives_each_point_once(operator, operation):
    measured(operation, range(1, 40))
    measured(operation, range(1, 40), name="accuracy")
    found, last_id = [], 0
    while True:
        page = data(operator.get(f"operations/{operation.pk}/metrics", first=25, after_id=last_id))
        if not page["series"]:
            break
        assert not page["is_thinned"]
        last_id = page["last_id"]
        new = [(each["name"], step) for each in page["series"] for step in each["steps"]]
        assert len(new) <= 25
        found += new
    assert sorted(found) == sorted((n, s) for n in ("loss", "accuracy") for s in range(1, 40))


def test_asking_on_gives_only_what_is_new(operator, operation):
    path = f"operations/{operation.pk}/metrics"
    measured(operation, range(1, 4))
    last_id = data(operator.get(path))["last_id"]
    assert data(operator.get(path, after_id=last_id)) == {
        "series": [],
        "last_id": last_id,
        "is_thinned": False,
    }
    measured(operation, [4])
    assert data(operator.get(path, after_id=last_id))["series"][0]["steps"] == [4]
    assert data(operator.get(path, after_step=2))["series"][0]["steps"] == [3, 4]


@pytest.mark.slow
@pytest.mark.database
def test_a_long_curve_is_thinned_but_keeps_its_spikes_and_its_end(operator, operation):
    values = dict.fromkeys(range(1, 5001), 1.0) | {1234: 99.0, 4321: -99.0}
    measured(operation, values, value=values.get)
    curves = data(operator.get(f"operations/{operation.pk}/metrics", max_points=100))
    (curve,) = curves["series"]
    assert curves["is_thinned"]
    assert 33 <= len(curve["steps"]) <= 102
    assert curve["steps"] == sorted(curve["steps"])
    assert curve["steps"][-1] == 5000
    shown = dict(zip(curve["steps"], curve["values"], strict=True))
    assert (shown[1234], shown[4321]) == (99.0, -99.0)
    assert all(values[step] == value for step, value in shown.items())


def test_what_is_not_finite_is_text(operator, operation):
    for step, name in enumerate(("nan", "inf", "-inf"), start=1):
        measured(operation, [step], value=lambda _: None, not_finite=name)
    (curve,) = data(operator.get(f"operations/{operation.pk}/metrics"))["series"]
    assert curve["values"] == ["NaN", "Infinity", "-Infinity"]


def test_a_thinned_curve_shows_where_it_broke(operator, operation):
    measured(operation, range(1, 1000))
    measured(operation, [1000], value=lambda _: None, not_finite="nan")
    measured(operation, range(1001, 2000))
    (curve,) = data(operator.get(f"operations/{operation.pk}/metrics", max_points=20))["series"]
    assert "NaN" in curve["values"]


def test_the_log_from_its_end_and_on(operator, operation):
    path = f"operations/{operation.pk}/logs"
    assert data(operator.get(path)) == {"chunks": [], "last_id": 0, "has_more": False}
    printed(operation, "one\ntwo\n", "three\nfour\n")
    log = data(operator.get(path, tail=3))
    assert "".join(chunk["text"] for chunk in log["chunks"]) == "two\nthree\nfour\n"
    assert log["has_more"]
    assert not data(operator.get(path, tail=4))["has_more"]
    assert data(operator.get(path, after=log["last_id"]))["chunks"] == []
    printed(operation, "five\n", attempt=2)
    news = data(operator.get(path, after=log["last_id"]))
    assert [(chunk["attempt"], chunk["text"]) for chunk in news["chunks"]] == [(2, "five\n")]
    assert data(operator.get(path, attempt=1))["chunks"][-1]["text"] == "three\nfour\n"


def test_a_long_log_comes_in_portions(operator, operation):
    path = f"operations/{operation.pk}/logs"
    printed(operation, *["x" * 100_000] * 6)
    first = data(operator.get(path, after=0))
    rest = data(operator.get(path, after=first["last_id"]))
    assert (len(first["chunks"]), first["has_more"]) == (3, True)
    assert (len(rest["chunks"]), rest["has_more"]) == (3, False)


def test_the_log_as_a_file(operator, operation):
    printed(operation, "one\n", "<script>\n")
    printed(operation, "two\n", attempt=2)
    path = f"/api/v1/operations/{operation.pk}/logs.txt"
    for accepted in ("text/plain", "*/*"):
        response = operator.client.get(path, headers={"Accept": accepted})
        assert b"".join(response.streaming_content) == b"one\n<script>\ntwo\n"
    assert response["Content-Type"] == "text/plain; charset=utf-8"
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["Content-Disposition"].startswith("attachment")
    error(operator.get("operations/op_x/logs.txt"), 404, "OPERATION_NOT_FOUND")


def test_attempts_with_receipt_and_timings(operator, operation):
    receipt = {"step": 0, "checkpoint": None, "exact": True, "items": []}
    Attempt.objects.update(receipt=receipt, timings={"child": 0.02})
    response = operator.get(f"operations/{operation.pk}/attempts")
    (attempt,) = data(response)
    assert (attempt["number"], attempt["worker_id"], attempt["host"]) == (1, "worker-1", "host")
    assert (attempt["receipt"], attempt["timings"]) == (receipt, {"child": 0.02})
    assert response.json()["total_count"] == 1


def test_the_live_view_gives_what_is_asked_for_and_no_more(operator, operation):
    path = f"operations/{operation.pk}/live"
    bare = data(operator.get(path))
    assert bare.keys() == {"operation", "attempts"}
    assert bare["operation"]["allowed_actions"] == ["cancel", "kill"]
    measured(operation, range(1, 4))
    printed(operation, "hello\n")
    live = data(operator.get(path, points_after=0, log_after=0, events_after=0))
    assert live["points"]["series"][0]["steps"] == [1, 2, 3]
    assert live["log"]["chunks"][0]["text"] == "hello\n"
    assert [event["what"] for event in live["events"]] == ["RUNNING", "SUBMITTED"]
    seen = {
        "points_after": live["points"]["last_id"],
        "log_after": live["log"]["last_id"],
        "events_after": live["events"][0]["id"],
    }
    later = data(operator.get(path, **seen))
    assert (later["points"]["series"], later["log"]["chunks"], later["events"]) == ([], [], [])


def test_the_live_view_says_when_nothing_changed(
    operator, operation, django_assert_max_num_queries
):
    path = f"/api/v1/operations/{operation.pk}/live?points_after=0&log_after=0&events_after=0"
    tag = operator.client.get(path)["ETag"]
    with django_assert_max_num_queries(9):
        same = operator.client.get(path, headers={"If-None-Match": tag})
    assert (same.status_code, same.content, same["ETag"]) == (304, b"", tag)
    operation.row.update(step=1)
    assert operator.client.get(path, headers={"If-None-Match": tag}).status_code == 200


@pytest.mark.parametrize("part", ["metrics", "logs", "events", "attempts", "live", "artifacts"])
def test_parts_of_an_unknown_operation(operator, part):
    error(operator.get(f"operations/op_x/{part}"), 404, "OPERATION_NOT_FOUND")


@pytest.mark.parametrize(
    "query",
    ["metrics?max_points=1", "metrics?after_id=-1", "logs?tail=0", "logs?attempt=x", "live?x=1",
     "metrics?max_point=10", "metrics?first=0", "events?what=x", "logs?after=99999999999999999999"],
)  # fmt: skip
def test_wrong_parameters_are_named(operator, operation, query):
    problem = error(operator.get(f"operations/{operation.pk}/{query}"), 400, "VALIDATION_ERROR")
    assert list(problem["details"]["fields"]) == [query.split("?")[1].split("=")[0]]


def test_a_window_of_steps_has_only_its_points(operator, operation):
    measured(operation, range(1, 101))
    path = f"operations/{operation.pk}/metrics"
    (curve,) = data(operator.get(path, after_step=9, to_step=12))["series"]
    assert curve["steps"] == [10, 11, 12]
    error(operator.get(path, to_step="last"), 400, "VALIDATION_ERROR")


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r"])
def test_no_metric_is_a_formula_in_the_csv(operator, operation, begin):
    """A recipe, or a worker over HTTP, chooses the names."""
    name = f"{begin}HYPERLINK(1)"
    measured(operation, [1], name=name, value=lambda _: None, not_finite="-inf")
    response = operator.client.get(f"/api/v1/operations/{operation.pk}/metrics.csv")
    (line,) = csv.DictReader(io.StringIO(response.getvalue().decode(), newline=""))
    assert (line["name"], line["value"]) == (f"'{name}".replace("\r", " "), "-Infinity")


def test_points_as_csv_have_every_point_once_with_what_is_not_finite(
    operator, operation, monkeypatch
):
    monkeypatch.setattr(points_csv, "PAGE", 3)
    measured(operation, range(1, 8))
    measured(operation, range(6, 9), attempt=2)
    measured(operation, [1], name="accuracy", value=lambda _: None, not_finite="nan")
    rows.retire(operation, by=2, after_step=5)
    path = f"/api/v1/operations/{operation.pk}/metrics.csv"
    response = operator.client.get(path)
    assert response["Content-Type"].startswith("text/csv")
    lines = list(csv.DictReader(response.getvalue().decode().splitlines()))
    assert (lines[0]["name"], lines[0]["value"]) == ("accuracy", "NaN")
    found = [(int(line["step"]), line["attempt"], line["retired_by"]) for line in lines[1:]]
    retired = [(6, "1", "2"), (6, "2", ""), (7, "1", "2"), (7, "2", ""), (8, "2", "")]
    assert found == [(step, "1", "") for step in range(1, 6)] + retired
    only = operator.client.get(path, {"name": "loss", "after_step": 6}).getvalue().decode()
    assert [line.split(",")[:3] for line in only.splitlines()[1:]] == [
        ["loss", "7", "1"],
        ["loss", "7", "2"],
        ["loss", "8", "2"],
    ]
    error(
        operator.get(f"operations/{operation.pk}/metrics.csv", to_step="x"), 400, "VALIDATION_ERROR"
    )
