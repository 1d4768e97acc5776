"""A shutdown lets a single agent's episode end, if that is soon; the run ends the same."""

import pytest

from tests.engines.contract import (
    Case,
    ScriptedSupervisor,
    attempt,
    require_same_end,
    undisturbed,
)
from tests.rl.cases import CARTPOLE, of
from trainops.runtime.loop import Directive

AT = 3


def stopped(tmp_path, *, seconds=20.0, agents=1, directive=Directive.PREEMPT):
    """Return the case, and what it reported until it stopped."""
    config = of(CARTPOLE, "dqn", agents, 30, checkpoint={"finish_episode_seconds": seconds})
    case, supervisor = Case("rl", "settling", config, stops=()), ScriptedSupervisor(AT, directive)
    attempt(case, tmp_path, supervisor)
    return case, supervisor


@pytest.mark.slow
def test_the_episode_ends_before_what_a_shutdown_saves(tmp_path):
    case, first = stopped(tmp_path)
    step = first.checkpoints[-1].step
    assert first.checkpoints[-1].type == "shutdown" and AT < step <= 11
    second = ScriptedSupervisor()
    attempt(case, tmp_path, second, resume=first.checkpoints[::-1], number=2)
    require_same_end(undisturbed(case, tmp_path / "whole"), [first, second])


@pytest.mark.parametrize(
    "given",
    [{"seconds": 0.0}, {"agents": 8}, {"directive": Directive.CANCEL}],
    ids=["no time", "several agents", "a person's cancel"],
)
def test_else_it_is_saved_in_the_middle(given, tmp_path):
    _, supervisor = stopped(tmp_path, **given)
    assert supervisor.checkpoints[-1].step == AT
