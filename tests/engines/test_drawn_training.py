"""The contract on drawn configs: stopped, killed or looked at, a training ends the same.

Every field of the schema is drawn. In each run of the suite every two values of two fields meet in
some config; `test_a_search_finds_no_difference` runs for the configured time.
"""

import random
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import strategies as st

from tests.engines.contract import (
    DATASET,
    DrawnCase,
    ending,
    is_rightly_refused,
    price_table,
    require_drawn,
    require_looking_changes_nothing,
    require_same_ending,
    small_pictures,
    small_table,
)
from tests.engines.drawing import Space, search
from tests.thinning import quick_some
from trainops.kinds.training.config import TrainingConfig
from trainops.runtime import reproducibility

TABLES = {"tabular": small_table, "images": small_pictures, "price_direction": price_table}
FEATURES = {"returns": [1], "averages": [3], "rsi": [], "macd": False, "bollinger": [],
            "donchian": [], "atr": [2]}  # fmt: skip
PARAMETERS = {  # of each recipe, with what it measures beside the loss
    "toy": [
        ({}, "accuracy"),
        ({"two_optimizers": True, "examples": 34}, "accuracy"),
        ({"remember": True, "width": 3}, "accuracy"),
        ({"examples": 33}, "accuracy"),  # 25 are trained on: of batches of 8, the last has one
    ],
    "tabular": [
        ({"dataset": DATASET, "target": "price", "hidden_sizes": [4]}, "absolute_error"),
        ({"dataset": DATASET, "target": "town", "hidden_sizes": []}, "accuracy"),
    ],
    "images": [({"dataset": DATASET, "channels": 2, "hidden": 4, "norm": "batch"}, "accuracy")],
    "price_direction": [
        ({"dataset": DATASET, "horizon": 2, "hidden_sizes": [4], "features": FEATURES}, "accuracy"),
        ({"dataset": DATASET, "horizon": 1, "hidden_sizes": [], "features": FEATURES,
          "task": "regression"}, "absolute_error"),
    ],
}  # fmt: skip
METRIC = "METRIC"  # stands for the recipe's own
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
    "parameters": [0, 1, 2, 3],  # which of the recipe's
    "epochs": [1, 2, 4],
    "batch_size": [8, 13, 64],
    "learning_rate": [0.001, 0.05],
    "weight_decay": [0.0, 0.1],
    "momentum": [0.0, 0.9],
    "scheduler_step_epochs": [1, 2],
    "scheduler_factor": [0.1, 0.7],
    "warmup_fraction": [0.0, 0.1, 0.6],
    "gradient_accumulation": [1, 2, 5],
    "max_grad_norm": [None, 0.5],
    "early_stopping_patience": [None, 1, 2],
    "monitor": ["val_loss", "train_loss", f"val_{METRIC}"],
    "monitors": [{}, {"train_loss": "max"}, {f"val_{METRIC}": "max", "train_loss": "min"}],
    "log_every_steps": [1, 3, 1000],
}
WITHOUT_EFFECT = ("checkpoint", "restart", "limits", "resources", "log_every_steps")
OF_SCHEDULES = {  # which fields count with them
    "none": (), "cosine": (), "step": ("scheduler_step_epochs", "scheduler_factor"),
    "onecycle": ("warmup_fraction", "learning_rate", "momentum"),
    "warmup_cosine": ("warmup_fraction",),
}  # fmt: skip
LEARNED = ("model", "optimizer", "scheduler", "history", "random")


def settled(drawn):
    """Give a recipe its own parameters and metric; see the config's `parse`."""
    drawn, of_recipe = dict(drawn), PARAMETERS[drawn["recipe"]]
    drawn["parameters"], metric = of_recipe[drawn["parameters"] % len(of_recipe)]
    drawn["monitor"] = drawn["monitor"].replace(METRIC, metric)
    further = {name.replace(METRIC, metric): mode for name, mode in drawn["monitors"].items()}
    drawn["monitors"] = {name: each for name, each in further.items() if name != drawn["monitor"]}
    if drawn["device"] == "cpu":
        drawn["resources.gpu_memory_gb"] = None
    elif torch.cuda.is_available():
        drawn["deterministic"] = True  # else a GPU's last bits may differ
    if drawn["max_grad_norm"] is None:
        drawn["limits.exploding_norm"] = None
    return drawn


SPACE = Space(TrainingConfig, VALUES, settled)
PAIRWISE = SPACE.pairwise(together=("recipe", "parameters", "batch_size"))


@pytest.fixture(autouse=True)
def _settings_again():
    yield
    reproducibility.set_determinism(deterministic=True, threads=1)


def require_contract(config, chance):
    with tempfile.TemporaryDirectory() as name:
        root, rng = Path(name), random.Random(chance)  # noqa: S311
        case = DrawnCase("training", "drawn", config, (), TABLES.get(config["recipe"]))
        if is_rightly_refused(case, root):
            return
        require_drawn(case, root, rng)
        expected = require_looking_changes_nothing(case, root, rng, look)
        other = rng.choice(PAIRWISE)
        changes = {name: other[name] for name in without_effect(config)}
        if config["device"] == "cpu":
            changes["resources"] = {"memory_gb": 1.0}
        if config["max_grad_norm"] is None:
            changes["limits"] = {**changes["limits"], "exploding_norm": None}
        found = ending(case, root, changes)
        require_same_ending(expected, replace(found, points={}), changes)
        if config["early_stopping_patience"] is None:  # else it tells when to stop
            changes = {"monitor": "train_loss", "mode": other["mode"], "monitors": {}}
            found = ending(case, root, changes)
            assert learned(found) == learned(expected), other["mode"]


def without_effect(config):
    """Return the fields that may be changed."""
    counting = set(OF_SCHEDULES[config["scheduler"]])
    if config["parameters"].get("two_optimizers"):
        counting -= {"momentum"}
        candidates = {"learning_rate", "weight_decay", "optimizer", "momentum"}
        if "learning_rate" in counting:  # onecycle asks whether there is momentum to cycle
            candidates -= {"optimizer", "momentum"}
    else:
        candidates = set() if config["optimizer"] == "sgd" else {"momentum"}
    candidates |= {"scheduler_step_epochs", "scheduler_factor", "warmup_fraction"}
    return [*WITHOUT_EFFECT, *sorted(candidates - counting)]


def learned(found):
    return {name: found.state.get(name) for name in LEARNED}


def look(job):
    job.state_dict()
    assert job.place and job.total_steps >= job.step
    if job.progress.cursor.epoch:  # there is nothing to tell before
        job.result()


def test_every_field_is_varied():
    assert SPACE.unvaried(PAIRWISE) == []


def test_batches_of_one_example_are_among_what_is_drawn():
    """The model has batch normalisation: such a config is refused before the first step."""
    drawn = [each for each in PAIRWISE if each["parameters"].get("examples") == 33]
    sizes = {each["batch_size"] for each in drawn}
    assert sizes == {8, 13, 64}
    for config in drawn:
        case = DrawnCase("training", "drawn", config, ())
        with tempfile.TemporaryDirectory() as name:
            assert is_rightly_refused(case, Path(name)) == (config["batch_size"] == 8)


@pytest.mark.slow
@pytest.mark.parametrize("number", quick_some(range(len(PAIRWISE)), every=16))
def test_a_drawn_training_ends_where_an_undisturbed_one_does(number):
    require_contract(PAIRWISE[number], chance=number)


@pytest.mark.exhaustive
@pytest.mark.timeout(0)
def test_a_search_finds_no_difference():
    search(require_contract, config=SPACE.configs(), chance=st.integers(0, 100_000))
