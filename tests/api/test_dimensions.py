"""What operations are drawn over, and parameter importance: values, limits, refusals."""

import json

import pytest
from django.core.cache import cache

from apps.operations.comparisons import dimensions, importance
from apps.operations.comparisons.dimensions import of_leaves, scalar
from tests.api.answers import data, error
from tests.api.test_comparisons import compared, made, measured
from tests.pages.test_studies import GRID, completed, prices
from tests.pages.test_studies import made as study_of
from trainops.confined.calling import ConfinedProcessFailed

pytestmark = pytest.mark.slow

__all__ = ["prices"]  # a fixture


@pytest.fixture
def ana(viewer):
    cache.clear()
    return viewer.user


@pytest.fixture
def asked(monkeypatch):
    """Requests to the process that grows the forest, which is replaced by an even division."""
    requests = []

    def call(module, request, limits):
        requests.append(request)
        return {name: 1 / len(request["fields"]) for name in request["fields"]}

    monkeypatch.setattr(importance, "call", call)
    return requests


def by_key(found):
    return {each["key"]: each["values"] for each in found["dimensions"]}


def eight(owner, **fields):
    """Eight completed operations with a rate and a loss each."""
    operations = []
    for i in range(8):
        each = made(owner, f"run {i}", learning_rate=0.1 * (i + 1), **fields)
        measured(each, "val_loss", {10: 2.0, 20: 1.0 + i})
        operations.append(each)
    return operations


def test_a_comparison_has_its_fields_and_values_as_columns(viewer):
    one = made(viewer.user, "one", learning_rate=0.1, parameters={"width": 8, "tails": [1, 2]})
    two = made(viewer.user, "two", learning_rate=0.01, parameters={"width": 8, "on": True})
    measured(one, "val_loss", {10: 0.5, 20: 0.75})
    measured(two, "val_loss", {10: "nan"})
    found = compared(viewer, two, one)
    assert by_key(found) == {
        "learning_rate": [0.01, 0.1],
        "parameters.tails": [None, "[1, 2]"],
        "parameters.on": ["true", None],
        "val_loss final": [None, 0.75],
        "val_loss best": [None, 0.5],
    }
    modes = {each["key"]: each["mode"] for each in found["dimensions"]}
    assert modes["val_loss best"] == "min" and modes["learning_rate"] is None


def test_a_study_has_its_trials_and_latest_metrics_as_columns(viewer, prices, in_process):
    study = study_of(viewer.user, prices, GRID)
    completed(study)
    last = study.operations.order_by("pk").last()
    metrics = {"equity": 5.0, "train_loss": 2.0, "epoch": 1, "system/speed": 2.0}
    extremes = {"equity": [1.0, 9.0], "train_loss": [0.5, 3.0]}
    last.row.update(state="FAILED", metrics=metrics, extremes=extremes)
    found = data(viewer.get(f"studies/{study.pk}/dimensions"))
    columns = by_key(found)
    assert [each["operation_id"] for each in found["operations"]][-1] == last.pk
    assert found["target"] == "sharpe result" and not found["is_active"]
    rows = zip(columns["parameters.slow"], columns["parameters.fast"], strict=True)
    assert columns["sharpe result"] == [*[slow - fast for slow, fast in rows][:-1], None]
    assert columns["equity final"] == [None] * 7 + [5.0] and "equity best" not in columns
    assert columns["train_loss best"] == [None] * 7 + [0.5]
    assert columns["trades result"] == [7] * 8 and "epoch final" not in columns
    assert set([*columns][:3]) == {"parameters.fast", "parameters.slow", "cash"}


def test_fields_of_trials_differ_also_by_being_absent():
    found = of_leaves([{"a": 1, "same": 2}, {"a": 1.0, "same": 2, "b": "x"}, {"a": 3, "same": 2}])
    assert {each["key"]: each["values"] for each in found} == {
        "a": [1, 1.0, 3], "b": [None, "x", None],
    }  # fmt: skip


def test_scalars_are_numbers_or_short_text():
    values = {"n": None, "t": True, "f": float("nan"), "e": "", "l": ["x"] * 90, "i": 3}
    found = {key: scalar(values, key) for key in (*values, "absent")}
    assert found["n"] == "null" and found["t"] == "true" and found["f"] == "NaN"
    assert found["e"] == '""' and len(found["l"]) == 81 and found["i"] == 3
    assert found["absent"] is None


def test_the_default_target_is_what_most_operations_have():
    columns = [
        dimensions.field("rate", [1, 2]),
        dimensions.value("some", "best", "min", [1.0, None]),
        dimensions.value("range", "lowest", None, [1.0, 2.0]),
        dimensions.value("loss", "final", "min", [1.0, 2.0]),
        dimensions.value("loss", "best", "min", [1.0, float("inf")]),
        dimensions.value("accuracy", "best", "max", [1.0, 2.0]),
    ]
    assert dimensions.default_target(columns) == "accuracy best"
    assert dimensions.default_target(columns, {"loss"}) == "loss final"
    assert dimensions.default_target(columns[:4]) == "loss final"
    assert dimensions.default_target(columns[:1]) == ""


def test_importance_is_of_what_differs_among_completed_operations(viewer, ana, asked):
    operations = eight(ana)
    failed = made(ana, "failed", state="FAILED", learning_rate=9.0, seed=5)
    measured(failed, "val_loss", {10: 0.1})
    ids = ",".join(each.pk for each in [*operations, failed])
    found = data(viewer.get("operations/compare/importance", ids=ids, target="val_loss final"))
    assert found == {
        "target": "val_loss final", "num_operations": 8, "problem": "",
        "shares": [{"field": "learning_rate", "share": 1.0}],
    }  # fmt: skip
    (request,) = asked
    assert list(request["fields"]) == ["learning_rate"], "seed differs only in what failed"
    assert request["targets"] == [1.0 + i for i in range(8)]
    data(viewer.get("operations/compare/importance", ids=ids, target="val_loss final"))
    assert len(asked) == 1, "shares are kept"


def test_reasons_for_no_importance(viewer, ana, asked):
    operations = eight(ana)
    few = ",".join(each.pk for each in operations[:7])
    found = data(viewer.get("operations/compare/importance", ids=few))
    assert found["problem"].startswith("7 completed operations with a value; at least 8")
    ids = ",".join(each.pk for each in operations)
    for each in operations:
        measured(each, "flat_loss", {10: 3.0})
    found = data(viewer.get("operations/compare/importance", ids=ids, target="flat_loss best"))
    assert found["problem"] == "All operations have the same value."
    refused = viewer.get("operations/compare/importance", ids=ids, target="loss")
    problem = error(refused, 400, "VALIDATION_ERROR")["details"]["fields"]["target"]
    assert "got 'loss'; allowed: " in problem and "val_loss best" in problem
    for each in operations:
        each.row.update(config=operations[0].config)
    found = data(viewer.get("operations/compare/importance", ids=ids, target="val_loss final"))
    assert found["problem"].startswith("No config field differs") and not asked
    nothing = [made(ana, name) for name in ("a", "b")]
    ids = ",".join(each.pk for each in nothing)
    found = data(viewer.get("operations/compare/importance", ids=ids))
    assert found["problem"] == "No metric has been measured yet." and found["target"] == ""


def test_only_one_importance_is_computed_at_a_time(viewer, ana, asked):
    ids = ",".join(each.pk for each in eight(ana))
    with importance._limit.taken(""):
        answer = viewer.get("operations/compare/importance", ids=ids)
    error(answer, 503, "BUSY")
    assert answer["Retry-After"] == "3"


def test_a_crash_of_the_process_is_an_error_without_its_cause(viewer, ana, monkeypatch):
    def call(*_):
        raise ConfinedProcessFailed("it was killed", "secret traceback")

    monkeypatch.setattr(importance, "call", call)
    ids = ",".join(each.pk for each in eight(ana))
    answer = viewer.get("operations/compare/importance", ids=ids)
    error(answer, 500, "IMPORTANCE_FAILED")
    assert b"secret" not in answer.content


@pytest.mark.slow
def test_a_forest_finds_the_field_that_matters():
    from apps.operations.comparisons import forest

    rates = [1e-4 * 3**i for i in range(12)]
    request = {
        "fields": {
            "rate": rates,
            "name": ["adam", "sgd", None] * 4,
            "noise": [5.0, None, 2.0, 4.0, 4.0, 1.0, None, 5.0, 2.0, 3.0, 1.0, 3.0],
        },
        "targets": [float(i) for i in range(12)],
    }
    found = forest.answer(request)
    assert sum(found.values()) == pytest.approx(1) and max(found, key=found.get) == "rate"
    assert found["rate"] > 0.7 and found == forest.answer(request), "the same every time"
    by_name = [{"adam": 0.0, "sgd": 5.0, None: 9.0}[each] for each in request["fields"]["name"]]
    found = forest.answer(request | {"targets": by_name})
    assert max(found, key=found.get) == "name" and json.dumps(found)
    below = forest.column([5, None, 2.5])
    assert below["values"] == [5.0, 0.0, 2.5] and below["distribution"].low == 0.0


@pytest.mark.slow
def test_importance_of_a_study_is_computed_in_a_process_of_its_own(viewer, ana, prices, in_process):
    study = study_of(ana, prices, GRID)
    completed(study)
    found = data(viewer.get(f"studies/{study.pk}/importance"))
    shares = {each["field"]: each["share"] for each in found["shares"]}
    assert found["target"] == "sharpe result" and found["num_operations"] == 8
    assert list(shares) == ["parameters.slow", "parameters.fast", "cash"]
    assert shares["parameters.slow"] > 0.8 and sum(shares.values()) == pytest.approx(1)
    error(viewer.get(f"studies/{study.pk}/importance", target="x"), 400, "VALIDATION_ERROR")
