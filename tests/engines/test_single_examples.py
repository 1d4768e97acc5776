"""A last batch of one example, with batch normalisation: refused before the start, or possible."""

import random
import re

import numpy as np
import pytest
import torch
from torch import nn

from tests.engines import toy_model
from tests.engines.toy import ToyParameters
from trainops.kind import KINDS
from trainops.learning.ingredients import Context, Examples
from trainops.learning.single_examples import require_trainable
from trainops.runtime import reproducibility
from trainops.runtime.errors import InputError

TRAINED = 25  # of 33 examples of the toy


def make_job(kind="training", **config):
    engine = KINDS[kind]
    return engine.make_job(engine.parse_config(config), {})


def train(batch_size, examples=33):
    job = make_job(recipe="toy", parameters={"examples": examples}, batch_size=batch_size, epochs=1)
    while job.step < job.total_steps:
        job.advance()
    return job


@pytest.mark.parametrize("batch_size", [1, 2, 3, 4, 6, 8, 12, 24])
def test_a_training_is_refused_with_the_sizes_and_what_is_allowed(batch_size):
    with pytest.raises(InputError) as refused:
        train(batch_size)
    problem = refused.value.errors["batch_size"]
    assert f"got {batch_size}; of the {TRAINED} examples of the training data" in problem
    assert "the last batch has 1, and batch normalisation needs 2 or more" in problem
    allowed = [int(number) for number in re.findall(r"\d+", problem.partition("allowed: ")[2])]
    assert allowed and not any(TRAINED % number == 1 for number in allowed)
    for number in allowed:
        train(number)


@pytest.mark.parametrize("batch_size", [5, 7, 23, 25, 26, 1000])
def test_any_other_size_is_trained(batch_size):
    assert train(batch_size).step


def test_one_example_is_refused_whatever_the_batch_size():
    with pytest.raises(InputError, match="has 1 example only") as refused:
        train(8, examples=2)
    assert list(refused.value.errors) == ["recipe"]


def test_one_example_is_trained_with_batch_normalisation_in_eval_mode(monkeypatch):
    def build(parameters, context):
        made = original(parameters, context)
        made.model[1].eval()
        return made

    original = toy_model.build
    monkeypatch.setattr(toy_model, "build", build)
    assert train(8).step


class Frozen(nn.Sequential):
    """Keeps its statistics in training, as fine-tuned models do."""

    def train(self, mode=True):
        super().train(mode)
        self[0].eval()
        return self


IMAGE, ROW = torch.zeros(9, 2, 4, 4), torch.zeros(9, 2)


@pytest.mark.parametrize(
    ("model", "inputs", "is_possible"),
    [
        (nn.BatchNorm2d(2), IMAGE, True),
        (nn.Sequential(nn.AvgPool2d(4), nn.BatchNorm2d(2)), IMAGE, False),
        (nn.BatchNorm1d(2), torch.zeros(9, 2, 5), True),
        (nn.BatchNorm1d(2), ROW, False),
        (nn.SyncBatchNorm(2), ROW, False),
        (nn.BatchNorm1d(2, track_running_stats=False), ROW, False),
        (nn.LayerNorm(2), ROW, True),
        (Frozen(nn.BatchNorm1d(2)).train(), ROW, True),
    ],
)
def test_what_the_model_computes_decides(model, inputs, is_possible):
    examples = Examples((inputs,), torch.zeros(9))
    try:
        require_trainable(model, examples, 4, {"the data": 9})
    except InputError:
        assert not is_possible
    else:
        assert is_possible


def test_trying_changes_nothing():
    """Neither the model, its statistics and its own generator, nor the global streams."""
    ingredients = toy_model.build(ToyParameters(), Context(0))
    model = ingredients.model
    chance = np.random.default_rng(3)
    model[2].register_forward_pre_hook(lambda *_: chance.random() and None)
    model.append(nn.Dropout(0.5))
    reproducibility.seed_all(5)
    before = model.state_dict()
    before = {name: value.clone() for name, value in before.items()}
    require_trainable(model, Examples((torch.zeros(9, 4),), torch.zeros(9)), 5, {"the data": 9})
    drawn = random.random(), np.random.random(), torch.rand(1), chance.random()  # noqa: NPY002, S311
    with pytest.raises(InputError):
        require_trainable(model, Examples((torch.zeros(9, 4),), torch.zeros(9)), 4, {"it": 9})
    reproducibility.seed_all(5)
    again = random.random(), np.random.random(), torch.rand(1)  # noqa: NPY002, S311
    assert again == drawn[:3] and chance.random() != drawn[3]
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def federated(batch_size, clients=3, **config):
    parameters = {"norm": True, **config.pop("parameters", {})}
    return make_job(
        "federated", recipe="crowd", parameters=parameters, batch_size=batch_size, clients=clients,
        rounds=1, **config,
    )  # fmt: skip


def test_a_client_whose_last_batch_has_one_example_is_refused_by_number():
    sizes = federated(1000).context.sizes
    size = next(n for n in range(2, max(sizes)) if sizes[1] % n == 1)
    with pytest.raises(InputError) as refused:
        federated(size)
    problem = refused.value.errors["batch_size"]
    assert "examples of client" in problem and f"got {size};" in problem
    allowed = [int(each) for each in re.findall(r"\d+", problem.partition("allowed: ")[2])]
    for number in allowed:
        job = federated(number)
        while job.step < job.total_steps:
            job.advance()


def test_a_client_without_normalisation_trains_on_any_batch():
    sizes = federated(1000).context.sizes
    size = next(n for n in range(2, max(sizes)) if sizes[1] % n == 1)
    assert federated(size, parameters={"norm": False}).total_steps
