"""Shuffled loaders that are trained together: whole passes in orders of their own, also resumed."""

import random

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.engines.contract import (
    Case,
    require_death_changes_nothing,
    require_stop_changes_nothing,
    undisturbed,
)

pytest.importorskip("lightning.pytorch", reason="the extra lightning is not installed")
from lightning.pytorch import LightningModule

from trainops.kinds.loop.lightning import lightning_loop

pytestmark = pytest.mark.slow
EPOCHS, NUM_STEPS = 3, 7  # of an epoch
SIZES = {"long": 7, "short": 3, "whole": 1}  # batches of one number each


class Seen(LightningModule):
    """Writes down the numbers that each step is given."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(1, 1)
        self.register_buffer("seen", torch.full((EPOCHS * NUM_STEPS, len(SIZES)), -1.0))

    def training_step(self, batch):
        self.seen[self.global_step] = torch.stack([batch[name][0][0, 0] for name in SIZES])
        return self.net(batch["long"][0]).square().mean()

    def train_dataloader(self):
        data = {name: TensorDataset(torch.arange(float(n))[:, None]) for name, n in SIZES.items()}
        return {name: DataLoader(each, shuffle=True) for name, each in data.items()}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


@pytest.fixture
def case(monkeypatch):
    loop = lightning_loop(lambda *_: Seen())
    monkeypatch.setattr("trainops.recipes.Recipe.builder", lambda _: loop)
    parameters = {"max_epochs": EPOCHS}
    config = {"recipe": "lit", "parameters": parameters, "monitor": "train_loss", "threads": 1}
    return Case("loop", "combined", config, ())


def passes_of(seen, num_batches):
    """Return the order of each pass, and that of the last one in an epoch as far as it goes."""
    epochs = seen.reshape(EPOCHS, NUM_STEPS)
    return [part.tolist() for epoch in epochs for part in epoch.split(num_batches)]


def test_each_pass_is_an_order_of_its_own_and_the_same_after_stops_and_deaths(case, tmp_path):
    expected = undisturbed(case, tmp_path)
    model = expected.checkpoints[-1].path / "model.pt"
    seen = torch.load(model, weights_only=True)["seen"]  # noqa: TID251
    for column, num_batches in enumerate(SIZES.values()):
        passes = passes_of(seen[:, column], num_batches)
        whole = [each for each in passes if len(each) == num_batches]
        assert all(sorted(each) == list(range(num_batches)) for each in whole)
        assert all(len(set(each)) == len(each) for each in passes)
        assert num_batches == 1 or len(set(map(tuple, whole))) > 1
    steps = range(1, EPOCHS * NUM_STEPS)
    require_stop_changes_nothing(case, tmp_path / "all", expected, list(steps))
    for at in random.Random("combined").sample(steps, 4):
        require_stop_changes_nothing(case, tmp_path / f"stop{at}", expected, [at])
        require_death_changes_nothing(case, tmp_path / f"death{at}", expected, at, 2)
