"""Filters and orders by rows of latest values find what `Operation.metrics` holds."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.operations.models import LatestValue, Operation
from apps.operations.points import latest_values
from apps.operations.search import by_value
from apps.operations.search.by_value import leading
from apps.operations.search.conditions import condition
from apps.operations.search.sorting import ordering
from apps.workers import maintenance
from tests.pages import making

pytestmark = pytest.mark.database
VALUES = st.none() | st.sampled_from([0, 0.25, 0.5, 1, -1.5, "nan", "inf"])
ROWS = st.tuples(
    VALUES,  # when rows are written
    VALUES,  # later, where it was resumed
    st.sampled_from(["COMPLETED", "FAILED", "RUNNING", "resumed", "resumed and ended", "archived"]),
)


@pytest.fixture
def ana(db):
    return making.person("ana", "operator")


def metrics_of(value):
    return {"other": 7.0} if value is None else {"loss": value, "other": 7.0}


def make(ana, before, after, state):
    """Make an operation; return what changes it once rows were written."""
    begun = state if state in ("FAILED", "RUNNING") else "COMPLETED"
    made = making.operation(ana, begun, metrics=metrics_of(before))
    changes = {"attempt": 2, "metrics": metrics_of(after)}
    if state == "resumed":
        lease = making.operation(ana, "RUNNING").lease_expires_at
        return made, changes | {"state": "RUNNING", "lease_expires_at": lease}
    if state == "archived":
        return made, {"archived_at": made.created_at}
    return made, changes if state == "resumed and ended" else {}


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(ROWS, min_size=1, max_size=9), st.integers(1, 4), st.integers(1, 5), st.data())
def test_orders_and_comparisons_are_those_of_the_metrics(ana, monkeypatch, rows, few, stop, data):
    Operation.objects.all().delete()
    monkeypatch.setattr(by_value, "FEW", few)
    made = [make(ana, *row) for row in rows]
    latest_values.write_missing()
    for operation, changes in made:
        operation.row.update(**changes)
    for sort in ("loss", "-loss", "other", "-created", "best(loss)"):
        for found in (Operation.objects.all(), Operation.objects.listed()):
            expected = list(found.order_by(*ordering(sort)).values_list("pk", flat=True))
            some = leading(found, sort, stop).order_by(*ordering(sort))
            assert list(some.values_list("pk", flat=True))[:stop] == expected[:stop]
    sign, number = data.draw(st.sampled_from(["<", "<=", ">", ">=", "=", "!="])), data.draw(VALUES)
    number = number if isinstance(number, int | float) else 0.25
    finite = {
        pk: metrics["loss"]
        for pk, metrics in Operation.objects.values_list("pk", "metrics")
        if not isinstance(metrics.get("loss", ""), str)
    }
    held = {pk for pk, value in finite.items() if compare(value, sign, number)}
    matching = Operation.objects.filter(condition(f"loss{sign}{number}", ana))
    assert set(matching.values_list("pk", flat=True)) == held
    others = Operation.objects.filter(condition(f"-loss{sign}{number}", ana))
    assert {*others.values_list("pk", flat=True)} == {
        *Operation.objects.exclude(pk__in=held).values_list("pk", flat=True)
    }


def compare(value, sign, number):
    return {
        "<": value < number,
        "<=": value <= number,
        ">": value > number,
        ">=": value >= number,
        "=": value == number,
        "!=": value != number,
    }[sign]


def test_the_sweep_writes_rows_once_per_attempt(ana, monkeypatch):
    monkeypatch.setattr(latest_values, "AT_ONCE", 2)
    for value in (1, 2, 3):
        making.operation(ana, "COMPLETED", metrics={"loss": value, "other": "nan"})
    making.operation(ana, "RUNNING", metrics={"loss": 4})
    maintenance.sweep(actor="beat")
    assert LatestValue.objects.count() == 2
    assert latest_values.write_missing() == 1
    assert latest_values.write_missing() == 0
    assert {*LatestValue.objects.values_list("name", "value")} == {("loss", v) for v in (1, 2, 3)}


def test_rows_of_an_earlier_attempt_are_replaced(ana):
    made = making.operation(ana, "COMPLETED", metrics={"loss": 1, "dropped": 1})
    latest_values.write_missing()
    made.row.update(attempt=2, metrics={"loss": 2})
    assert latest_values.write_missing() == 1
    assert [*LatestValue.objects.values_list("name", "value")] == [("loss", 2)]


def test_rows_go_with_their_operation(ana):
    made = making.operation(ana, "COMPLETED", metrics={"loss": 1})
    latest_values.write_missing()
    made.delete()
    assert not LatestValue.objects.exists()
