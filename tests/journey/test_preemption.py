"""Preemption and budgets with the workers of `up`, on both databases."""

import pytest

from tests.journey.stack import running
from trainops.launch.servers import postgres_server

# A sample with one worker process is in tests/operations: test_preemption.py, test_budgets.py.
pytestmark = [pytest.mark.faults, pytest.mark.journey, pytest.mark.slow, pytest.mark.exhaustive]
CONFIG = {
    "recipe": "scripted",
    "parameters": {"step_seconds": 0.05},
    "epochs": 60,
    "batch_size": 16,
    "checkpoint": {"every_steps": 20},
    "seed": 5,
}


@pytest.fixture(scope="module", params=["postgres", "embedded"])
def stack(request, tmp_path_factory):
    """One worker with one slot."""
    data_dir = tmp_path_factory.mktemp("preemption") / "var"
    after = {"TRAINOPS_PREEMPT_AFTER_SECONDS": "3"}
    if request.param == "embedded":
        with running(data_dir, **after) as stack:
            yield stack
        return
    with (
        postgres_server() as database,
        running(data_dir, TRAINOPS_DATABASE_URL=database, **after) as stack,
    ):
        yield stack


@pytest.fixture(scope="module")
def undisturbed(stack):
    operation_id = stack.submit(**CONFIG)
    stack.wait(operation_id, "COMPLETED")
    return operation_id


def require_equal(stack, operation_id, undisturbed):
    assert stack.artifacts(operation_id) == stack.artifacts(undisturbed)
    assert stack.curve(operation_id) == stack.curve(undisturbed)


def attempts(stack, operation_id):
    """Return how the attempts ended, the first first."""
    rows = reversed(stack.get(f"operations/{operation_id}/attempts"))
    return [(each["outcome"], each["reason"], each["preempted_for"]) for each in rows]


def test_a_preempted_operation_ends_with_the_exact_model(stack, undisturbed):
    low = stack.submit(**CONFIG)
    stack.wait_step(low, 20)
    urgent = stack.submit(**CONFIG | {"epochs": 2}, priority=5)
    stack.wait(urgent, "COMPLETED")
    assert attempts(stack, low)[0] == ("preempted", "PREEMPTED", urgent)
    ended = stack.wait(low, "COMPLETED")
    assert ended["restarts_used"] == 0
    assert len(attempts(stack, low)) == 2
    require_equal(stack, low, undisturbed)


def test_an_operation_beyond_its_budget_ends_with_the_exact_model_after_a_raise(stack, undisturbed):
    operation_id = stack.submit(**CONFIG)
    stack.wait_step(operation_id, 20)
    owner = stack.get(f"operations/{operation_id}")["owner"]
    budget = {"owner": owner, "budget_compute_hours": 0.0001, "budget_period": "total"}
    share = stack.post("shares", budget)
    handed_back = stack.wait(operation_id, "RESUMING")
    assert handed_back["waiting_for"]["code"] == "BUDGET_USED_UP"
    assert attempts(stack, operation_id) == [("preempted", "BUDGET_USED_UP", "")]
    stack.post("shares", budget | {"budget_compute_hours": 100})
    stack.wait(operation_id, "COMPLETED")
    stack.delete(f"shares/{share['share_id']}")
    require_equal(stack, operation_id, undisturbed)
