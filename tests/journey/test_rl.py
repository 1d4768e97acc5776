"""Agents on the whole installation: a cancel and a kill in mid-episode, the exact networks."""

import os
import signal

import pytest

from tests.journey.stack import running

pytestmark = [pytest.mark.journey, pytest.mark.slow]
STEPS = 4000
CONFIG = {
    "recipe": "grid_town",
    "agents": 4,
    "environment_steps": 4 * STEPS,
    "replay": {"capacity": 10_000, "prioritized": True},
    "dqn": {"learning_starts": 200},
    "evaluation": {"every_steps": 1500, "episodes": 3},
    "log_every_steps": 100,
    "checkpoint": {"every_episodes": 30},
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    with running(tmp_path_factory.mktemp("rl") / "var") as stack:
        yield stack


def submit(stack):
    return stack.post("operations", {"kind": "rl", "config": CONFIG})["id"]


@pytest.mark.exhaustive
def test_cancelled_resumed_and_killed_it_ends_with_the_exact_agents(stack):
    whole = submit(stack)
    expected = stack.wait(whole, "COMPLETED")
    assert expected["step"] == STEPS and expected["result"]["episodes"] > 100
    stopped = submit(stack)
    stack.wait_step(stopped, 1000)
    stack.post(f"operations/{stopped}/cancel")
    at = stack.wait(stopped, "CANCELLED")["step"]
    assert at < STEPS
    stack.post(f"operations/{stopped}/resume")
    stack.wait_step(stopped, at + 1000)
    os.kill(stack.child_pid(stopped), signal.SIGKILL)
    found = stack.wait(stopped, "COMPLETED")
    assert found["result"] == expected["result"]
    assert stack.artifacts(stopped) == stack.artifacts(whole)
    assert stack.curve(stopped) == stack.curve(whole)
