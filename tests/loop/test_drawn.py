"""The contract on drawn configs of training loops; tests of drawn loops are in test_drawn_loops."""

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st

from tests.engines.contract import NESTED, DrawnCase, require_drawn
from tests.engines.drawing import Space, search
from tests.thinning import quick_some
from trainops.kinds.loop.config import LoopConfig
from trainops.runtime import reproducibility

PARAMETERS = {
    "digits_loop": [{"epochs": 2, "batch_size": 512}, {"epochs": 3, "batch_size": 1024}],
    "program": [{"body": NESTED}, {"body": NESTED[0]["body"][1:2]}],
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
    "checkpoint.every_epochs": [1, 2],
    "restart.max_restarts": [0, 3],
    "limits.cancel_timeout_seconds": [60.0, 5.0],
    "limits.stall_timeout_seconds": [1800.0, 30.0],
    "limits.max_duration_seconds": [None, 600.0],
    "limits.max_duration": [None, "10m"],
    "limits.exploding_norm": [None, 1e12],
    "resources.gpu_memory_gb": [None, 1.0],
    "resources.memory_gb": [None, 1.0],
    "recipe": list(PARAMETERS),
    "parameters": [0, 1],  # which of the recipe's
    "monitor": ["val_loss", "train_loss", "unknown"],
    "monitors": [{}, {"accuracy": "max"}, {"accuracy": "min", "another": "min"}],
    "log_every_steps": [1, 3, 1000],
    "processes": [1, 2],  # here one process computes it; several are tested in tests/ranks
    "nodes": [1, 2],
    "min_nodes": [None, 1],
    "sharding": ["none", "full"],
}


def settled(drawn):
    drawn = dict(drawn)
    drawn["parameters"] = PARAMETERS[drawn["recipe"]][drawn["parameters"]]
    if drawn["device"] == "cpu":
        drawn["resources.gpu_memory_gb"] = None
    return drawn


SPACE = Space(LoopConfig, VALUES, settled)
PAIRWISE = SPACE.pairwise(together=("recipe", "parameters"))


@pytest.fixture(autouse=True)
def _settings_again():
    yield
    reproducibility.set_determinism(deterministic=True, threads=1)


def require_contract(config, chance):
    with tempfile.TemporaryDirectory() as name:
        rng = random.Random(chance)
        require_drawn(DrawnCase("loop", "drawn", config, ()), Path(name), rng)


def test_every_field_is_varied():
    assert SPACE.unvaried(PAIRWISE) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", quick_some(range(len(PAIRWISE)), every=8))
def test_a_drawn_loop_ends_where_an_undisturbed_one_does(number):
    require_contract(PAIRWISE[number], chance=number)


@pytest.mark.exhaustive
@pytest.mark.timeout(0)
def test_a_search_finds_no_difference():
    search(require_contract, config=SPACE.configs(), chance=st.integers(0, 100_000))
