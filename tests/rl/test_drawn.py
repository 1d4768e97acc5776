"""The contract on drawn configs: stopped, killed or looked at, a population ends the same.

Every field of the schema is drawn. In each run of the suite every two values of two fields meet in
some config; `test_a_search_finds_no_difference` runs for the configured time.
"""

import random
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import strategies as st

from tests.engines.contract import (
    DrawnCase,
    ending,
    require_drawn,
    require_looking_changes_nothing,
    require_same_ending,
)
from tests.engines.drawing import Space, search
from tests.rl.cases import STAGES, WORLD
from tests.thinning import quick_some
from trainops.kinds.rl.config import RlConfig
from trainops.runtime import reproducibility

PARAMETERS = {  # of each recipe
    "grid_world": [
        WORLD,
        {**WORLD, "size": [4], "use": "named", "boundary": "wrap", "placement": "run"},
        {**WORLD, "vision": 1, "temporal": False, "mask_actions": False, "start": [1, 1]},
    ],
    "gymnasium": [
        {"id": "CartPole-v1", "max_steps": 11},
        {"id": "FrozenLake-v1", "max_steps": 9},
    ],
}
VALUES = {
    "seed": [0, 9],
    "device": ["auto", "cpu"],
    "threads": [1, 2],
    "checkpoint.every_steps": [None, 3],
    "checkpoint.every_seconds": [300.0, 1e-6],
    "checkpoint.least_seconds": [0.0, 1.0],
    "checkpoint.keep_last": [1, 3],
    "checkpoint.keep_best": [0, 1],
    "checkpoint.every_episodes": [1, 100],
    "checkpoint.finish_episode_seconds": [0.0, 1.0],
    "restart.max_restarts": [0, 3],
    "limits.cancel_timeout_seconds": [60.0, 5.0],
    "limits.stall_timeout_seconds": [1800.0, 30.0],
    "limits.max_duration_seconds": [None, 600.0],
    "limits.max_duration": [None, "10m"],
    "resources.gpu_memory_gb": [None, 1.0],
    "resources.memory_gb": [None, 1.0],
    "recipe": list(PARAMETERS),
    "parameters": [0, 1, 2],  # which of the recipe's
    "agents": [1, 3],
    "environment_steps": [15, 26],
    "episodes": [None, 3],
    "discount": [0.9, 1.0],
    "learning_rate": [1e-3, 0.05],
    "max_grad_norm": [None, 1.0],
    "network.hidden_sizes": [[], [5], [4, 3]],
    "network.memory_size": [3, 5],
    "dqn.n_step": [1, 3],
    "dqn.batch_size": [2, 4],
    "dqn.train_every": [1, 2],
    "dqn.gradient_steps": [1, 2],
    "dqn.learning_starts": [0, 6],
    "dqn.target_every": [1, 3],
    "dqn.target_tau": [None, 0.1],
    "dqn.sequence_length": [2, 3],
    "dqn.burn_in": [0, 2],
    "replay.capacity": [24, 60],
    "replay.alpha": [0.6, 0.0],
    "replay.beta": [0.4, 1.0],
    "replay.beta_steps": [20, 100],
    "replay.eta": [0.9, 0.5],
    "exploration.start": [1.0, 0.3],
    "exploration.end": [0.05, 0.2],
    "exploration.steps": [10, 100],
    "exploration.decay": [0.99, 0.5],
    "ppo.rollout_steps": [4, 7],
    "ppo.epochs": [1, 2],
    "ppo.batch_size": [2, 4],
    "ppo.gae_lambda": [0.95, 0.5],
    "ppo.clip": [0.2, 0.1],
    "ppo.entropy_weight": [0.0, 0.1],
    "ppo.value_weight": [0.5, 1.0],
    "novelty.weight": [0.0, 0.5],
    "novelty.end": [0.0, 0.2],
    "novelty.steps": [10, 150],
    "novelty.embedding": [2, 3],
    "novelty.learning_rate": [1e-4, 1e-2],
    "curriculum.stages": [[], STAGES, STAGES[:2]],
    "curriculum.window": [2, 4],
    "curriculum.min_episodes": [1, 2],
    "curriculum.advance_at": [0.6, 0.9],
    "curriculum.retreat_at": [0.2, 0.5],
    "curriculum.max_entropy": [0.5, 1.0],
    "curriculum.temperature": [0.3, 2.0],
    "evaluation.every_steps": [5, 1000],
    "evaluation.episodes": [1, 2],
    "evaluation.max_frames": [2, 500],
    "log_every_steps": [1, 4, 1000],
}
WITHOUT_EFFECT = ("checkpoint", "restart", "limits", "resources", "log_every_steps")
OF_OTHERS = {"dqn": ("ppo",), "recurrent_dqn": ("ppo",), "ppo": ("dqn",)}
OF_EVALUATIONS = ("state", "best_model")  # parts that tell of them


def settled(drawn):
    """Give a recipe its own parameters, and leave out what cannot be had together."""
    drawn = dict(drawn)
    of_recipe = PARAMETERS[drawn["recipe"]]
    drawn["parameters"] = of_recipe[drawn["parameters"] % len(of_recipe)]
    if drawn["algorithm"] == "ppo":
        drawn["replay.prioritized"] = False
    if drawn["curriculum.rule"] != "none":
        drawn["curriculum.stages"] = drawn["curriculum.stages"] or STAGES
    if drawn["device"] == "cpu":
        drawn["resources.gpu_memory_gb"] = None
    return drawn


SPACE = Space(RlConfig, VALUES, settled)
PAIRWISE = SPACE.pairwise()


@pytest.fixture(autouse=True)
def _settings_again():
    yield
    reproducibility.set_determinism(deterministic=True, threads=1)


def require_contract(config, chance):
    with tempfile.TemporaryDirectory() as name:
        root, rng = Path(name), random.Random(chance)  # noqa: S311
        kept = {**config, "open_episodes": "kept"}  # what a resume changes else, it shall
        case = DrawnCase("rl", "drawn", kept, ())
        require_drawn(case, root, rng)
        expected = require_looking_changes_nothing(case, root, rng, look)
        other = rng.choice(PAIRWISE)
        names = [*WITHOUT_EFFECT, *OF_OTHERS[config["algorithm"]]]
        changes = {name: other[name] for name in names}
        changes["open_episodes"] = config["open_episodes"]
        if config["device"] == "cpu":
            changes["resources"] = {"memory_gb": 1.0}
        found = ending(case, root, changes)
        require_same_ending(expected, replace(found, points={}), changes)
        changes = {"evaluation": other["evaluation"]}
        assert learned(ending(case, root, changes)) == learned(expected), changes


def learned(found):
    return {name: part for name, part in found.state.items() if name not in OF_EVALUATIONS}


def look(job):
    job.state_dict()
    job.result()
    assert job.place and job.total_steps >= job.step


def test_every_field_is_varied():
    assert SPACE.unvaried(PAIRWISE) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", quick_some(range(len(PAIRWISE)), every=16))
def test_a_drawn_population_ends_where_an_undisturbed_one_does(number):
    require_contract(PAIRWISE[number], chance=number)


@pytest.mark.exhaustive
@pytest.mark.timeout(0)
def test_a_search_finds_no_difference():
    search(require_contract, config=SPACE.configs(), chance=st.integers(0, 100_000))
