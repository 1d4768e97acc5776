"""Every algorithm in either world: stopped and killed in the middle of episodes, then compared."""

from itertools import product

import pytest

from tests.engines.contract import (
    Case,
    MachineDied,
    ScriptedSupervisor,
    attempt,
    require_same_end,
    undisturbed,
)
from tests.rl.cases import ADAPTIVE, CARTPOLE, GRID, PRIORITIZED, SEPARATE, of
from tests.thinning import some_of

LEARNERS = {
    "dqn": ("dqn", {}),
    "recurrent": ("recurrent_dqn", {}),
    "prioritized": ("dqn", PRIORITIZED),
    "sequences": (
        "recurrent_dqn",
        {"dqn": {"n_step": 2}, "replay": {**PRIORITIZED["replay"], "capacity": 96}},
    ),
    "ppo": ("ppo", {}),
    "separate": ("dqn", {**PRIORITIZED, **SEPARATE}),
    "separate-recurrent": ("recurrent_dqn", SEPARATE),
    "separate-ppo": ("ppo", SEPARATE),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agents", "curriculum", "world", "learner"),
    some_of([*product([1, 8], [ADAPTIVE, {}], [GRID, CARTPOLE], LEARNERS)], every=5),
)
def test_stopped_and_killed_twice_it_ends_the_same(world, learner, agents, curriculum, tmp_path):
    """The final state has weights, ring, stages, and each episode's line; so has the curve."""
    algorithm, more = LEARNERS[learner]
    case = Case("rl", "matrix", of(world, algorithm, agents, 21, **more, **curriculum), stops=())
    expected = undisturbed(case, tmp_path)
    script = [(3, False), (8, True), (10, False), (15, True), (None, False)]
    attempts, saved = [], []
    for number, (at, dies) in enumerate(script, start=1):
        supervisor = ScriptedSupervisor(at=at, dies=dies)
        try:
            attempt(case, tmp_path, supervisor, resume=saved, every_steps=4, number=number)
        except MachineDied:
            assert dies
        saved = [*reversed(supervisor.checkpoints), *saved]
        attempts.append(supervisor)
    require_same_end(expected, attempts)
