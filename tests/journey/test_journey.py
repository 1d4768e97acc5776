"""The main job through real processes, on both stacks: nothing is faked, every signal is real."""

import signal

import psutil
import pytest

from apps.workers import neighbours
from tests.journey.stack import running
from tests.thinning import some_of
from tests.waiting import has_ended, wait_until
from trainops.launch.servers import postgres_server, redis_server

pytestmark = [pytest.mark.journey, pytest.mark.slow]

CONFIG = {
    "recipe": "scripted",
    "parameters": {"step_seconds": 0.01},
    "epochs": 120,
    "batch_size": 16,
    "scheduler": "cosine",
    "checkpoint": {"every_steps": 40},
}


@pytest.fixture(scope="module", params=some_of(["embedded", "postgres"], every=2))
def stack(request, tmp_path_factory):
    data_dir = tmp_path_factory.mktemp("journey") / "var"
    if request.param == "embedded":
        with running(data_dir, workers=2) as stack:
            yield stack
        return
    with postgres_server() as database, redis_server() as broker:
        urls = {"TRAINOPS_DATABASE_URL": database, "TRAINOPS_BROKER_URL": broker}
        with running(data_dir, workers=2, **urls) as stack:
            yield stack


@pytest.fixture(scope="module")
def undisturbed(stack):
    operation_id = stack.submit(**CONFIG)
    stack.wait(operation_id, "COMPLETED")
    return operation_id


def require_equal(stack, operation_id, undisturbed):
    assert stack.artifacts(operation_id) == stack.artifacts(undisturbed)
    assert stack.curve(operation_id) == stack.curve(undisturbed)


def test_killed_restarted_cancelled_and_resumed_it_ends_with_the_exact_model(stack, undisturbed):
    operation_id = stack.submit(**CONFIG)
    stack.wait_step(operation_id, 60)
    psutil.Process(stack.child_pid(operation_id)).send_signal(signal.SIGKILL)

    # It goes on by itself, from the last checkpoint.
    wait_until(lambda: stack.get(f"operations/{operation_id}")["attempt"] == 2)
    stack.wait_step(operation_id, 150)
    first = stack.get(f"operations/{operation_id}/attempts")[-1]
    assert (first["outcome"], first["reason"]) == ("failed", "PROCESS_KILLED")

    stack.post(f"operations/{operation_id}/cancel")
    cancelled = stack.wait(operation_id, "CANCELLED")
    assert 150 <= cancelled["step"] < 480
    answer = stack.post(f"operations/{operation_id}/resume")
    assert answer["resumed_from"]["checkpoint_type"] == "cancellation"

    done = stack.wait(operation_id, "COMPLETED")
    assert done["attempt"] == 3
    receipts = [each["receipt"] for each in stack.get(f"operations/{operation_id}/attempts")]
    assert [receipt["exact"] for receipt in receipts] == [True, True, True]
    require_equal(stack, operation_id, undisturbed)


def test_a_worker_that_is_killed_loses_nothing_but_time(stack, undisturbed):
    operation_id = stack.submit(**CONFIG)
    stack.wait_step(operation_id, 60)
    child = psutil.Process(stack.child_pid(operation_id))
    worker = child.parents()[1]  # child, forkserver, worker
    worker.send_signal(signal.SIGKILL)
    wait_until(lambda: has_ended(child))

    stack.wait(operation_id, "COMPLETED")
    events = [event["note"] for event in stack.get(f"operations/{operation_id}/events")]
    assert neighbours.NOTE in events  # without waiting for the lease to run out
    require_equal(stack, operation_id, undisturbed)


@pytest.mark.parametrize("number", some_of([signal.SIGTERM, signal.SIGUSR1], every=2))
def test_a_worker_asked_to_stop_saves_and_another_continues(stack, undisturbed, number):
    operation_id = stack.submit(**CONFIG)
    stack.wait_step(operation_id, 60)
    worker = psutil.Process(stack.child_pid(operation_id)).parents()[1]
    worker.send_signal(number)

    stack.wait(operation_id, "COMPLETED")
    attempts = stack.get(f"operations/{operation_id}/attempts")
    assert (attempts[-1]["outcome"], attempts[-1]["reason"]) == ("preempted", "SHUTDOWN")
    assert len(attempts) == 2
    assert attempts[0]["from_step"] == attempts[-1]["to_step"]  # not a step was lost
    require_equal(stack, operation_id, undisturbed)


def test_a_worker_that_is_frozen_beyond_its_lease_is_a_ghost_that_changes_nothing(
    stack, undisturbed
):
    operation_id = stack.submit(**CONFIG)
    stack.wait_step(operation_id, 60)
    child = psutil.Process(stack.child_pid(operation_id))
    worker = child.parents()[1]
    stack.freeze(worker)
    try:
        # The child hears no more grants: its own timer ends it before anyone may take over.
        wait_until(lambda: has_ended(child))
        wait_until(lambda: stack.get(f"operations/{operation_id}")["attempt"] == 2)
    finally:
        worker.resume()
    stack.wait(operation_id, "COMPLETED")
    require_equal(stack, operation_id, undisturbed)


def test_lost_messages_are_mended(stack):
    """The broker receives nothing at all: the row alone is the promise."""
    stack.post("operations", {"kind": "training", "config": CONFIG | {"epochs": 1}})
    ids = [stack.submit(**CONFIG | {"epochs": 1}) for _ in range(5)]
    for operation_id in ids:
        stack.wait(operation_id, "COMPLETED")


def test_web_and_beat_do_not_load_torch(stack):
    for word in ("trainops.web", "beat"):
        for process in stack.processes(word):
            maps = [each.path for each in process.memory_maps()]
            assert not any("libtorch" in path for path in maps), word
