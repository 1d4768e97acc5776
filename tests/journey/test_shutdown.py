"""`up` is asked to stop, in each way; what ran continues at the next start."""

import signal
import time

import psutil
import pytest

from tests.journey.stack import running

pytestmark = [pytest.mark.faults, pytest.mark.journey, pytest.mark.slow]
CONFIG = {
    "recipe": "scripted",
    "parameters": {"step_seconds": 0.02},
    "epochs": 60,
    "batch_size": 16,
    "checkpoint": {"every_steps": 50},
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    with running(tmp_path_factory.mktemp("undisturbed") / "var") as stack:
        operation_id = stack.submit(**CONFIG)
        stack.wait(operation_id, "COMPLETED")
        return stack.artifacts(operation_id), stack.curve(operation_id)


@pytest.mark.parametrize(
    ("signals", "code"),
    [
        pytest.param([signal.SIGTERM], 0, marks=pytest.mark.exhaustive),
        ([signal.SIGINT], 0),
        pytest.param([signal.SIGUSR1, signal.SIGUSR1], 0, marks=pytest.mark.exhaustive),
        pytest.param([signal.SIGTERM, signal.SIGTERM], 1, marks=pytest.mark.exhaustive),
    ],
    ids=["terminate", "interrupt", "a batch system, twice", "terminate twice"],
)
def test_what_ran_continues_at_the_next_start(tmp_path, undisturbed, signals, code):
    with running(tmp_path / "var") as stack:
        operation_id = stack.submit(**CONFIG)
        stack.wait_step(operation_id, 60)
        family = psutil.Process(stack.process.pid).children(recursive=True)
        began = time.monotonic()
        for number in signals:
            stack.process.send_signal(number)
            time.sleep(0.6 if len(signals) > 1 else 0)  # one key press may be delivered twice
        assert stack.process.wait(120) == code
        assert time.monotonic() - began < 60
        _, left = psutil.wait_procs(family, timeout=30)
        assert not left

    with running(tmp_path / "var") as stack:
        stack.wait(operation_id, "COMPLETED")
        assert (stack.artifacts(operation_id), stack.curve(operation_id)) == undisturbed
        attempts = stack.get(f"operations/{operation_id}/attempts")[::-1]
        if code == 0:  # saved to the last step, and handed back without a penalty
            assert (attempts[0]["outcome"], attempts[0]["reason"]) == ("preempted", "SHUTDOWN")
            assert attempts[1]["from_step"] == attempts[0]["to_step"] >= 60
        else:  # what was not saved is computed again
            assert attempts[-1]["from_step"] >= 50
