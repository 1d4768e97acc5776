"""Web and beat are alive, and no worker is: nothing stays RUNNING, everything offers an action."""

from contextlib import contextmanager, suppress

import psutil
import pytest

from tests.faults.faults import BEAT, WORKER
from tests.journey.stack import QUICK, running
from tests.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.journey, pytest.mark.slow]
CONFIG = {
    "recipe": "scripted",
    "parameters": {"step_seconds": 0.05},
    "epochs": 200,
    "batch_size": 16,
    "checkpoint": {"every_steps": 10},
}
WEB = "trainops.web"
LEASE_SECONDS = float(QUICK["ORPHAN_TIMEOUT_SECONDS"])


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    recipes = {"TRAINOPS_RECIPES": "tests.recipes.scripted:RECIPE"}
    with running(tmp_path_factory.mktemp("alone") / "var", **recipes) as stack:
        yield stack


@contextmanager
def frozen(stack, *words):
    """Suspend these processes: for all others they are dead, and `up` does not start new ones."""
    suspended = [process for word in words for process in stack.processes(word)]
    assert suspended
    for process in suspended:
        stack.freeze(process)
    try:
        yield
    finally:
        for process in suspended:
            with suppress(psutil.NoSuchProcess):
                process.resume()


def running_operation(stack, **config):
    operation_id = stack.submit(**CONFIG | config)
    stack.wait_step(operation_id, 30)
    return operation_id


def lease_has_expired(stack, operation_id):
    """Whether the page's own answer offers what nobody else would do."""
    operation = stack.get(f"operations/{operation_id}")
    return operation["state"] != "RUNNING" or "cancel" in operation["allowed_actions"]


@pytest.mark.parametrize("also_frozen", [(), (BEAT,)], ids=["beat-alive", "beat-frozen"])
def test_an_operation_without_any_worker_goes_back_to_the_queue(stack, also_frozen):
    operation_id = running_operation(stack)
    with frozen(stack, WORKER, *also_frozen):
        waiting = stack.wait(operation_id, "RESUMING", seconds=4 * LEASE_SECONDS)
        assert waiting["reason"] == "WORKER_LOST"
        assert waiting["waiting_for"]["code"] in {"PAUSED", "NO_WORKER", "WORKERS_UNREACHABLE"}
        assert waiting["allowed_actions"] == ["cancel"]
        events = stack.get(f"operations/{operation_id}/events")
        assert (events[0]["what"], events[0]["actor"]) in {
            ("RESUMING", "web"),
            ("RESUMING", "beat"),
        }
        assert stack.post(f"operations/{operation_id}/cancel")["state"] == "CANCELLED"
    assert stack.get(f"operations/{operation_id}")["is_resumable"]


@pytest.mark.exhaustive
def test_under_the_policy_never_it_fails_and_can_be_deleted(stack):
    operation_id = running_operation(stack, restart={"policy": "never"})
    with frozen(stack, WORKER):
        failed = stack.wait(operation_id, "FAILED", seconds=4 * LEASE_SECONDS)
        assert failed["reason"] == "WORKER_LOST"
        assert failed["allowed_actions"] == ["resume", "delete"]
        stack.delete(f"operations/{operation_id}")


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", ["cancel", "kill"])
def test_what_was_asked_for_before_the_lease_expired_is_settled_without_a_worker(stack, how):
    operation_id = running_operation(stack)
    with frozen(stack, WORKER):
        stack.post(f"operations/{operation_id}/{how}")
        ended = stack.wait(operation_id, "CANCELLED", seconds=4 * LEASE_SECONDS)
        assert ended["allowed_actions"] == ["resume", "delete"]
    wait_until(lambda: stack.get(f"operations/{operation_id}")["state"] == "CANCELLED")
