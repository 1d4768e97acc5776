"""A Hugging Face Trainer ends as by its own train(), also when it is stopped and resumed."""

import random

import pytest
import torch

from tests.engines.contract import (
    Case,
    require_death_changes_nothing,
    require_stop_changes_nothing,
    undisturbed,
)
from trainops.runtime import reproducibility

pytestmark = pytest.mark.slow
pytest.importorskip("transformers", reason="the extra transformers is not installed")
SEED = 7  # that of the contract


def case(device="auto", **parameters):
    config = {"recipe": "hugging", "parameters": parameters, "log_every_steps": 2, "threads": 1}
    config["device"] = device
    return Case("loop", "hugging", config | {"monitor": "eval_loss"}, ())


ORDERED = {"train_sampling_strategy": "sequential"}
CASES = {
    "plain": {},
    "accumulated": {"gradient_accumulation_steps": 4, "max_grad_norm": 0.1, "warmup_steps": 2},
    "by-steps": {"eval_strategy": "steps", "eval_steps": 3, "max_steps": 8},
    "half-precision": {"bf16": True, "lr_scheduler_type": "cosine"},
    "unclipped": {"max_grad_norm": 0.0, "weight_decay": 0.1, "optim": "adafactor"},
    "no-evaluation": {"eval_strategy": "no"},
}


@pytest.mark.parametrize("name", CASES)
def test_the_weights_are_those_of_trainer_train(tmp_path, name):
    from tests.loop.hugging import Parameters
    from tests.loop.hugging_trainer import make

    given = {"dropout": 0.0, "arguments": ORDERED | CASES[name]}
    done = undisturbed(case(device="cpu", **given), tmp_path)
    reproducibility.seed_all(SEED)
    trainer = make(None, Parameters.parse(given))
    trainer.train()
    saved = torch.load(done.checkpoints[-1].path / "model.pt", weights_only=True)  # noqa: TID251
    for key, value in trainer.model.state_dict().items():
        assert torch.equal(saved[key], value), key
    evaluated = [each for each in trainer.state.log_history if "eval_loss" in each]
    points = [each.metrics for each in done.progress if "eval_loss" in each.metrics]
    for one, other in zip(evaluated, points, strict=True):
        assert (one["eval_loss"], one["eval_accuracy"]) == (
            other["eval_loss"], other["eval_accuracy"],
        )  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_trainer_stopped_or_killed_anywhere_ends_the_same(tmp_path, name):
    found, rng = case(arguments=CASES[name]), random.Random(name)
    expected = undisturbed(found, tmp_path)
    steps = sorted({each.step for each in expected.progress})[:-1]
    require_stop_changes_nothing(found, tmp_path / "all", expected, steps)
    for at in rng.sample(steps[1:], 3):
        require_stop_changes_nothing(found, tmp_path / f"stop{at}", expected, [at - 1, at])
        require_death_changes_nothing(found, tmp_path / f"death{at}", expected, at, 2)


@pytest.mark.parametrize("is_random", [True, False])
def test_streams_are_set_for_datasets_that_may_draw(monkeypatch, tmp_path, is_random):
    from tests.loop.hugging_trainer import make
    from trainops.kinds.loop.transformers import transformers_loop

    started = []
    monkeypatch.setattr("trainops.kinds.loop.examples.start_streams", started.append)
    loop = transformers_loop(make, is_random=is_random)
    monkeypatch.setattr("trainops.recipes.Recipe.builder", lambda _: loop)
    undisturbed(case(arguments={"max_steps": 1}), tmp_path)
    assert bool(started) == is_random
