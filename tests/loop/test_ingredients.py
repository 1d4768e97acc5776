"""Ingredients over datasets: as a plain loop, refused with a reason, in little memory."""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import IterableDataset, TensorDataset

from tests.engines.contract import Case, attempt
from tests.engines.toy import RECIPE as TOY
from tests.memory import NO_HOLES
from trainops.datasets import registering
from trainops.kinds.loop.ingredients import ingredients_loop
from trainops.kinds.loop.settings import IngredientsParameters
from trainops.learning.ingredients import DatasetIngredients, accuracy
from trainops.paths import ROOT
from trainops.runtime.errors import IncompatibleState, InputError
from trainops.runtime.loop import Failed

NUMBERS = torch.Generator().manual_seed(5)
INPUTS = torch.randn(23, 6, generator=NUMBERS)
OTHERS = torch.randn(23, 2, generator=NUMBERS)
CLASSES = torch.randint(3, (23,), generator=NUMBERS)
TRAIN = TensorDataset(INPUTS[:16], OTHERS[:16], CLASSES[:16])
VALIDATION = TensorDataset(INPUTS[16:], OTHERS[16:], CLASSES[16:])


class InOrder(IterableDataset):
    """The examples of training in their order."""

    def __iter__(self):
        yield from TRAIN


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(10, 3)

    def forward(self, one, other):
        return self.second(torch.cat([self.first(one).relu(), other], dim=1))


def ingredients(**changes):
    found = {
        "model": TwoInputs(), "train": TRAIN, "validation": VALIDATION,
        "loss": functional.cross_entropy, "measures": {"accuracy": accuracy}, "loss_factor": 2.0,
    } | changes  # fmt: skip
    return DatasetIngredients(**found)


@pytest.fixture
def train(follow, monkeypatch):
    """Train ingredients by these parameters; return what the supervisor received."""

    def train(parameters=None, *, resume=(), at=None, **changes):
        settings = {"batch_size": 3, "epochs": 3, **(parameters or {})}
        monkeypatch.setattr(
            "trainops.recipes.Recipe.parse_parameters",
            lambda *_: IngredientsParameters.parse(settings),
        )
        made = ingredients_loop(lambda *_: ingredients(**changes))
        # on the CPU, as the plain loops
        return follow(made, resume=resume, at=at, log_every_steps=1, device="cpu")

    return train


def order_of(number):
    """Return the order of a pass by docs/loaders.md, written down here once more."""
    text = f"7/train/pass {number}/order"
    seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) % 2**63
    return torch.randperm(len(TRAIN), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(("accumulation", "made"), [(1, TRAIN), (3, TRAIN), (3, InOrder())])
def test_ingredients_are_trained_as_by_a_plain_loop(
    train, accumulation, made, precision, num_workers
):
    if made is not TRAIN and num_workers:
        num_workers = 1  # several would yield the examples several times
    settings = {"accumulation": accumulation, "precision": precision, "num_workers": num_workers}
    found = train({**settings, "optimizer": {"name": "SGD", "learning_rate": 0.1}}, train=made)
    torch.manual_seed(7)
    model = TwoInputs()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    half = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16")
    losses, validated = [], []
    for epoch in range(3):
        order = order_of(epoch) if made is TRAIN else torch.arange(len(TRAIN))
        batches = order.split(3)
        for first in range(0, len(batches), accumulation):
            window = batches[first : first + accumulation]
            total, shown = sum(map(len, window)), 0.0
            optimizer.zero_grad()
            for indices in window:
                with half:
                    outputs = model(INPUTS[indices], OTHERS[indices]).float()
                    loss = functional.cross_entropy(outputs, CLASSES[indices])
                (loss * (len(indices) / total)).backward()
                shown += loss.item() * 2 * (len(indices) / total)
            optimizer.step()
            losses.append(shown)
        with torch.no_grad(), half:
            right, summed = 0.0, 0.0
            for one, other, classes in (VALIDATION[i : i + 3] for i in range(0, 7, 3)):
                # copies: products on some CPUs depend on the address of what is multiplied
                outputs = model(one.clone(), other.clone()).float()
                summed += 2 * float(functional.cross_entropy(outputs, classes)) * len(classes)
                right += float((outputs.argmax(1) == classes).float().mean()) * len(classes)
        validated.append((summed / 7, right / 7))
    points = [each.metrics for each in found.progress]
    assert [each["train_loss"] for each in points if "train_loss" in each] == losses
    last = [(p["val_loss"], p["val_accuracy"]) for p in points if "val_loss" in p]
    assert last == validated
    path = found.checkpoints[-1].path / "model.pt"
    for name, weights in torch.load(path, weights_only=True).items():  # noqa: TID251
        assert torch.equal(weights, model.state_dict()[name.removeprefix("model.")]), name


def test_options_of_the_loader_and_an_optimizer_of_its_own(train):
    seen = []

    def loss(outputs, targets):
        seen.append(targets.tolist())
        return functional.cross_entropy(outputs, targets)

    made = []

    def optimizer(model):
        made.append(torch.optim.SGD(model.parameters(), lr=0.5))
        return made[-1]

    def schedulers(optimizer, steps):
        assert steps == 3 * 6
        return [
            torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9),
            torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, threshold=1e9, patience=0),
        ]

    train(
        loss=loss, optimizer=optimizer, schedulers=schedulers, validation=VALIDATION,
        train_options={"sampler": lambda seed, number: list(range(16))[::-1]},
    )  # fmt: skip
    assert seen[0] == CLASSES[[15, 14, 13]].tolist()
    assert made[0].param_groups[0]["lr"] < 0.5 * 0.9**18 / 9  # ReduceLROnPlateau: by 10, twice


BAD = {
    "mappings": (
        {"collate_fn": lambda examples: {"inputs": examples}},
        "got a batch of type dict; allowed: a list of the model's inputs and the targets",
    ),
    "options": ({"train_options": {"batch_size": 3}}, "got batch_size in train_options"),
    "no dataset": ({"train": 3}, "got a int for 'train'"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_trained_is_refused(train, name):
    changes, problem = BAD[name]
    with pytest.raises(InputError, match=problem):
        train(**changes)


def test_tensors_are_refused_by_name_where_datasets_are_trained(follow):
    with pytest.raises(InputError, match=r"got dict from .*; allowed: DatasetIngredients"):
        follow(ingredients_loop(lambda *_: {}))


def test_datasets_are_refused_by_name_where_tensors_are_trained(monkeypatch, tmp_path):
    monkeypatch.setattr(type(TOY), "builder", lambda _: lambda *_: ingredients())
    outcome = attempt(Case("training", "toy", {"recipe": "toy"}, ()), tmp_path)
    assert isinstance(outcome, Failed)
    assert "the kind loop with ingredients_loop(build)" in str(outcome.error)


def test_a_resume_with_other_constants_is_refused(train):
    first = train(constants={"mean": 1.5, "names": ["a"]}, at=4)
    train(constants={"mean": 1.5, "names": ["a"]}, resume=first.checkpoints)
    with pytest.raises(IncompatibleState, match="constants measured on the data differ: mean"):
        train(constants={"mean": 2.0, "names": ["a"]}, resume=first.checkpoints)


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_set_larger_than_the_limit_of_memory_is_trained(tmp_path, record_property, num_workers):
    """The example `spectra`, trained as a job; the data are ten times the limit."""
    limit, width = 24 * 2**20, 4096
    num_rows = 10 * limit // (4 * width)
    locations = []
    for name, rows in (("small", 2**8), ("large", num_rows)):
        root = tmp_path / name
        root.mkdir()
        np.save(root / "spectra.npy", np.ones((rows, width), np.float32))
        np.save(root / "classes.npy", np.arange(rows) % 2)
        (place := tmp_path / f"{name}-registered").mkdir()
        locations.append(registering.registered(root, "ds_0123456789abcdef", place))
    program = [sys.executable, "-m", "tests.loop.ingredients_memory"]
    ran = subprocess.run(
        [*program, *map(str, [*locations, limit, num_workers])], cwd=ROOT,
        env=os.environ | NO_HOLES, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    num_examples, *grown = map(int, ran.stdout.split())
    record_property("grown_bytes", grown)
    assert num_examples == num_rows and max(grown) < limit  # each example once
