"""A training module that is stopped or killed ends as an undisturbed one."""

import random

import pytest

from tests.engines.contract import (
    Case,
    require_death_changes_nothing,
    require_stop_changes_nothing,
    undisturbed,
)


def case(**parameters):
    parameters = {"epochs": 2, "optimizer": {"learning_rate": 0.05}} | parameters
    config = {"recipe": "pair", "parameters": parameters, "log_every_steps": 2, "threads": 1}
    return Case("loop", "pair", config, ())


CASES = {
    "plain": {},
    "everything": {
        "optimizers": 2, "accumulation": 4, "max_grad_norm": 0.5, "ema_decay": 0.7, "rare": True,
        "validate_every_steps": 3, "frozen_epochs": 1, "epochs": 3, "precision": "bf16",
        "schedule": {"name": "OneCycleLR", "options": {"max_lr": 0.1}},
        "second_schedule": {"name": "ReduceLROnPlateau", "options": {"patience": 0}},
    },
    "early": {"epochs": 9, "patience": 1, "stopping_mode": "max", "max_grad_value": 0.01},
    "closure": {"optimizer": {"name": "LBFGS", "options": {"max_iter": 3}}, "accumulation": 2},
    "plain-iterable": {"iterable": "plain", "accumulation": 4, "epochs": 3,
                       "schedule": {"name": "LinearLR", "interval": "epoch"}},
    "stateful-iterable": {"iterable": "stateful", "accumulation": 4, "validate_every_steps": 2,
                          "schedule": {"name": "LinearLR", "options": {"total_iters": 3}}},
    "iterable-workers": {"iterable": "stateful", "num_workers": 2, "accumulation": 3},
    "by-epoch": {"schedule": {"name": "CosineAnnealingLR", "interval": "epoch"}},
}  # fmt: skip


@pytest.mark.slow
def test_a_module_stopped_at_a_step_ends_the_same(tmp_path):
    found = case(**CASES["everything"])
    expected = undisturbed(found, tmp_path)
    require_stop_changes_nothing(
        found, tmp_path / "stops", expected, [1, 4, 11]
    )  # two within validations


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_module_stopped_or_killed_anywhere_ends_the_same(tmp_path, name):
    found, rng = case(**CASES[name]), random.Random(name)
    expected = undisturbed(found, tmp_path)
    steps = sorted({each.step for each in expected.progress})[:-1]
    require_stop_changes_nothing(found, tmp_path / "all", expected, steps)
    for at in rng.sample(steps[1:], 3):
        require_stop_changes_nothing(found, tmp_path / f"stop{at}", expected, [at - 1, at])
        require_death_changes_nothing(found, tmp_path / f"death{at}", expected, at, 2)
