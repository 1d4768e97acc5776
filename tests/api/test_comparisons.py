"""Operations compared by the API: differences, values, deltas, curves, and refused requests."""

import io

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.checkpoints import environments
from apps.datasets import services as datasets
from apps.operations.comparisons import curves, values
from apps.operations.comparisons.differences import differing, flatten
from apps.operations.models import DatasetUse, MetricPoint
from tests.api.answers import data, error
from tests.api.saved import damage, saved
from tests.operations import rows
from tests.pages import making

CPU = {"torch": "2.13.0", "device_type": "cpu", "threads": 1}
CODE = {"files": {"recipes/digits.py": "aa"}, "packages": {"numpy": "2.3"}, "commit": "c0ffee"}


@pytest.fixture(autouse=True)
def _nothing_remembered():
    environments._environment.cache_clear()


def made(owner, name, *, state="COMPLETED", result=None, **config):
    operation = making.operation(owner, state, name=name)
    operation.row.update(config=operation.config | config, result=result)
    operation.refresh_from_db()
    return operation


def measured(operation, name, points, attempt=1):
    MetricPoint.objects.bulk_create(
        MetricPoint(
            operation=operation, attempt=attempt, name=name, step=step, at=timezone.now(),
            value=None if value == "nan" else value, not_finite="nan" if value == "nan" else "",
        )
        for step, value in points.items()
    )  # fmt: skip


def compared(api, *operations, **query):
    ids = ",".join(each.pk for each in operations)
    return data(api.get("operations/compare", ids=ids, **query))


def part(comparison, name):
    (found,) = [each for each in comparison["differences"] if each["part"] == name]
    return {row["path"]: row["values"] for row in found["rows"]}


def value_row(comparison, name, what):
    (row,) = [row for row in comparison["values"] if (row["name"], row["what"]) == (name, what)]
    return row


def test_only_the_fields_of_the_config_that_differ_are_returned(viewer):
    one = made(viewer.user, "one", learning_rate=0.1, parameters={"width": 8})
    two = made(viewer.user, "two", learning_rate=0.01, parameters={"width": 8, "depth": None})
    comparison = compared(viewer, one, two)
    assert part(comparison, "config") == {
        "learning_rate": {one.pk: 0.1, two.pk: 0.01},
        "parameters.depth": {two.pk: None},
    }
    assert comparison["differences"][0]["num_equal"] > 20
    assert [each["name"] for each in comparison["operations"]] == ["one", "two"]
    assert comparison["baseline"] == one.pk


def test_code_and_environment_are_those_of_the_latest_checkpoint(viewer):
    one, two = made(viewer.user, "one"), made(viewer.user, "two")
    saved(one, step=10, environment={**CPU, "threads": 8, "code": CODE})
    saved(one, step=20, environment={**CPU, "code": CODE})
    saved(two, environment={**CPU, "torch": "2.12.0", "code": CODE | {"commit": "badbad"}})
    comparison = compared(viewer, one, two)
    assert part(comparison, "environment") == {"torch": {one.pk: "2.13.0", two.pk: "2.12.0"}}
    assert part(comparison, "code") == {"commit": {one.pk: "c0ffee", two.pk: "badbad"}}
    assert [each["problem"] for each in comparison["operations"]] == ["", ""]


def test_an_unknown_environment_is_no_difference_but_a_problem(viewer):
    one, two = made(viewer.user, "one"), made(viewer.user, "two")
    three, four = made(viewer.user, "three"), made(viewer.user, "four")
    saved(one, environment={**CPU, "code": CODE})
    saved(two, environment={**CPU, "threads": 2, "code": CODE})
    damage(saved(three, environment={**CPU, "threads": 3, "code": CODE}), "manifest.json")
    comparison = compared(viewer, one, two, three, four)
    assert part(comparison, "environment") == {"threads": {one.pk: 1, two.pk: 2}}
    assert part(comparison, "code") == {}
    problems = [each["problem"] for each in comparison["operations"]]
    assert problems[:2] == ["", ""]
    assert "missing or altered" in problems[2] and "no checkpoint" in problems[3]


def test_datasets_are_compared_by_id_and_digest(viewer):
    table = datasets.add_table(io.BytesIO(b"a\n1\n"), filename="a.csv", owner=viewer.user)
    other = datasets.add_table(io.BytesIO(b"a\n2\n"), filename="b.csv", owner=viewer.user)
    one = made(viewer.user, "one", parameters={"dataset": table.pk})
    two = made(viewer.user, "two", parameters={"dataset": other.pk})
    for operation, used in ((one, table), (two, other)):
        DatasetUse.objects.create(operation=operation, dataset_id=used.pk)
    comparison = compared(viewer, one, two)
    assert part(comparison, "data") == {
        "parameters.dataset": {one.pk: table.pk, two.pk: other.pk},
        "parameters.dataset digest": {one.pk: table.digest, two.pk: other.digest},
    }
    assert "parameters.dataset" not in part(comparison, "config")


def test_final_and_best_values_have_deltas_to_the_baseline(viewer):
    one = made(viewer.user, "one", monitor="val_accuracy", mode="max")
    two = made(viewer.user, "two", monitor="val_accuracy", mode="max")
    measured(one, "val_accuracy", {10: 0.5, 20: 0.75, 30: 0.25})
    measured(two, "val_accuracy", {10: 0.5, 20: "nan"})
    measured(one, "train_loss", {10: 3.0, 20: 2.0})
    comparison = compared(viewer, one, two, baseline=two.pk)
    best = value_row(comparison, "val_accuracy", "best")
    assert best["mode"] == "max" and best["best"] == [one.pk]
    assert best["values"] == {
        one.pk: {"value": 0.75, "step": 20, "delta": 0.25},
        two.pk: {"value": 0.5, "step": 10, "delta": None},
    }
    final = value_row(comparison, "val_accuracy", "final")
    assert final["values"][one.pk] == {"value": 0.25, "step": 30, "delta": None}
    assert final["values"][two.pk] == {"value": "NaN", "step": 20, "delta": None}
    loss = value_row(comparison, "train_loss", "best")
    assert loss["mode"] == "min" and list(loss["values"]) == [one.pk] and loss["best"] == []


def test_points_that_a_resume_retired_do_not_count(viewer):
    one, two = made(viewer.user, "one"), made(viewer.user, "two")
    measured(one, "val_loss", {10: 1.0, 20: 0.1})
    rows.retire(one, by=2, after_step=10)
    measured(one, "val_loss", {20: 0.5, 30: 0.75}, attempt=2)
    measured(two, "val_loss", {10: 0.5})
    measured(two, "system/examples_per_second", {10: 5.0})
    measured(two, "epoch", {10: 1.0})
    comparison = compared(viewer, one, two)
    (curve,) = comparison["curves"]
    assert curve["series"][one.pk] == {"steps": [10, 20, 30], "values": [1.0, 0.5, 0.75]}
    best = value_row(comparison, "val_loss", "best")
    assert best["values"][one.pk]["value"] == 0.5 and best["best"] == []


def test_the_direction_of_a_metric():
    monitored = {"return": {"max"}, "score": {"min", "max"}}
    modes = {
        "evaluation_return": "max", "return": "max", "score": None, "val_score": None,
        "train_loss": "min", "critic_loss": "min", "val_accuracy": "max", "epsilon": None,
    }  # fmt: skip
    assert {name: values.mode_of(name, monitored) for name in modes} == modes


def test_the_figures_of_results_are_compared_across_kinds(viewer):
    one = made(viewer.user, "one", result={"best": {"value": 0.5}, "epochs": 5})
    two = made(viewer.user, "two", result={"sharpe": 1.5, "return": None, "trades": True})
    two.row.update(kind="backtest", config={"monitor": "equity", "mode": "max", "cash": 1})
    comparison = compared(viewer, one, two)
    figures = {row["name"]: row for row in comparison["values"] if row["what"] == "result"}
    assert set(figures) == {"epochs", "sharpe"}
    assert figures["sharpe"]["mode"] == "max"
    assert figures["sharpe"]["values"] == {two.pk: {"value": 1.5, "step": None, "delta": None}}
    assert part(comparison, "config")["cash"] == {two.pk: 1}


def test_a_metric_without_a_direction_has_its_range(viewer):
    one, two = made(viewer.user, "one"), made(viewer.user, "two")
    measured(one, "epsilon", {1: 3.0, 2: 1.0, 3: 2.0})
    comparison = compared(viewer, one, two)
    lowest, highest = (value_row(comparison, "epsilon", w) for w in ("lowest", "highest"))
    assert lowest["values"][one.pk]["step"] == 2 and highest["values"][one.pk]["step"] == 1
    assert lowest["mode"] is None and lowest["best"] == []


@pytest.mark.database
@pytest.mark.slow
def test_long_curves_are_thinned_but_keep_their_extremes_and_their_end(viewer):
    one, two = made(viewer.user, "one"), made(viewer.user, "two")
    points = dict.fromkeys(range(1, 5001), 1.0) | {1234: 99.0, 2345: "nan", 4321: -99.0}
    measured(one, "val_loss", points)
    measured(two, "val_loss", dict.fromkeys(range(1, 51), 1.0))
    measured(two, "train_loss", dict.fromkeys(range(5000, 5301), 1.0))
    found = curves.of([one.pk, two.pk], max_points=600)
    long, short = (each["series"] for each in found.metrics)
    assert found.is_thinned
    steps, shown = long[one.pk]["steps"], long[one.pk]["values"]
    assert 67 <= len(steps) <= 203 and steps == sorted(set(steps)) and steps[-1] == 5000
    assert {99.0, -99.0, "NaN"} <= set(shown)
    assert all(points[step] in (value, "nan") for step, value in zip(steps, shown, strict=True))
    assert long[two.pk]["steps"] == list(range(1, 51)), "a short curve is complete"
    assert len(short[two.pk]["steps"]) < 301 and short[two.pk]["steps"][-1] == 5300


def test_metrics_beyond_the_limit_are_named(viewer, monkeypatch):
    monkeypatch.setattr(curves, "MAX_METRICS", 2)
    one, two = made(viewer.user, "one"), made(viewer.user, "two")
    for name in ("a", "b", "z"):
        measured(one, name, {1: 1.0})
    measured(two, "z", {1: 1.0})
    comparison = compared(viewer, one, two)
    assert [each["name"] for each in comparison["curves"]] == ["z", "a"]
    assert comparison["left_out"] == ["b"]


@pytest.mark.slow
def test_only_an_operation_with_long_curves_needs_one_more_query(viewer):
    operations = [made(viewer.user, f"number {i}") for i in range(12)]
    for each in operations:
        saved(each, environment={**CPU, "code": CODE})
        measured(each, "val_loss", dict.fromkeys(range(1, 20), 1.0))
    compared(viewer, *operations)  # the first reading of the storage records its identity
    counts = []
    for number, extra in ((2, 0), (12, 0), (12, 6000)):
        measured(operations[0], "val_loss", dict.fromkeys(range(20, 20 + extra), 1.0))
        environments._environment.cache_clear()
        with CaptureQueriesContext(connection) as queries:
            compared(viewer, *operations[:number])
        counts.append(len(queries))
    few, many, with_a_long_curve = counts
    assert few == many <= 12 and with_a_long_curve == many + 1


def test_requests_that_cannot_be_compared_are_refused(viewer):
    one, two = made(viewer.user, "one"), made(viewer.user, "two")
    many = ",".join(f"op_{i}" for i in range(13))
    for query, field, says in (
        ({"ids": one.pk}, "ids", "got 1; allowed: 2 to 12 operations"),
        ({"ids": many}, "ids", "got 13; allowed: 2 to 12 operations"),
        ({"ids": f"{one.pk},{one.pk}"}, "ids", f"got '{one.pk}' 2 times; allowed"),
        ({"ids": f"{one.pk},{two.pk}", "baseline": "op_x"}, "baseline", "got 'op_x'; allowed: one"),
        ({}, "ids", "required"),
        ({"ids": f"{one.pk},{two.pk}", "base": "op_x"}, "base", "allowed: ids, baseline"),
    ):
        found = error(viewer.get("operations/compare", **query), 400, "VALIDATION_ERROR")
        assert says in found["details"]["fields"][field]
    unknown = viewer.get("operations/compare", ids=f"{one.pk},op_gone")
    found = error(unknown, 404, "OPERATION_NOT_FOUND")
    assert "'op_gone'" in found["message"]


def test_a_comparison_needs_a_role(viewer, client):
    assert client.get("/api/v1/operations/compare?ids=a,b").status_code == 401
    viewer.user.groups.clear()
    error(viewer.get("operations/compare", ids="a,b"), 403, "PERMISSION_DENIED")


def test_nested_values_are_flattened_and_compared():
    assert flatten({"a": {"b": 1, "c": {}}, "d": [1, {"e": 2}]}) == {
        "a.b": 1, "a.c": {}, "d": [1, {"e": 2}],
    }  # fmt: skip
    found = differing({"x": {"a": 1, "b": True, "c": [1]}, "y": {"a": 1.0, "b": 1, "c": [1]}})
    assert [row["path"] for row in found.rows] == ["b"] and found.num_equal == 2
    assert differing({}).rows == [] and differing({"x": {"a": 1}}).num_equal == 1
