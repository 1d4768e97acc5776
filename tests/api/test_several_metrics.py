"""The metrics of several operations in one response, thinned to a number of points."""

import pytest

from apps.operations.points import metric_queries
from tests.api.answers import data, error
from tests.pages import making

PATH = "operations/metrics"


@pytest.fixture
def pair(operator):
    """Two operations with curves."""
    found = [making.operation(operator.user, "COMPLETED") for _ in range(2)]
    for each in found:
        making.curve(each)
    return found


def asked(api, *operations, **query):
    ids = ",".join(each.pk for each in operations)
    return data(api.get(PATH, ids=ids, **query))["operations"]


def num_points(rows):
    return sum(len(curve["steps"]) for row in rows for curve in row["series"])


def test_each_operation_has_the_curves_of_its_own_endpoint(operator, pair):
    first, second = pair
    rows = asked(operator, second, first, second)
    assert [row.pop("operation_id") for row in rows] == [second.pk, first.pk]
    assert rows == [data(operator.get(f"operations/{each.pk}/metrics")) for each in (second, first)]


def test_names_and_steps_select_points(operator, pair):
    rows = asked(operator, *pair, name="val_loss,train_loss", after_step=9, to_step=10)
    for row in rows:
        assert [(each["name"], each["steps"]) for each in row["series"]] == [
            ("train_loss", [10]),
            ("val_loss", [10]),
        ]


def test_curves_are_thinned_as_those_of_one_operation(operator, pair):
    rows = asked(operator, *pair, name="train_loss", max_points=10)
    alone = data(operator.get(f"operations/{pair[0].pk}/metrics", name="train_loss", max_points=10))
    assert alone["is_thinned"] and rows[0]["series"] == alone["series"]


def test_all_curves_together_are_bounded(operator, pair, monkeypatch):
    assert num_points(asked(operator, *pair, name="train_loss")) == 40
    monkeypatch.setattr(metric_queries, "MAX_POINTS_OF_SEVERAL", 20)
    rows = asked(operator, *pair, name="train_loss")
    assert num_points(rows) <= 24 and all(row["is_thinned"] for row in rows)


def test_an_operation_without_points_has_no_curves(operator):
    operation = making.operation(operator.user)
    assert asked(operator, operation) == [
        {"operation_id": operation.pk, "series": [], "last_id": 0, "is_thinned": False}
    ]


@pytest.mark.parametrize(
    ("ids", "problem"),
    [
        (",", "got 0; allowed: 1 to 50 ids"),
        (",".join(f"op_{number}" for number in range(51)), "got 51; allowed: 1 to 50 ids"),
    ],
)
def test_a_wrong_number_of_ids_is_refused(operator, ids, problem):
    refused = error(operator.get(PATH, ids=ids), 400, "VALIDATION_ERROR")
    assert problem in refused["details"]["fields"]["ids"]


def test_an_unknown_id_is_named(operator, pair):
    refused = error(operator.get(PATH, ids=f"{pair[0].pk},op_none"), 404, "OPERATION_NOT_FOUND")
    assert "op_none" in refused["message"]
