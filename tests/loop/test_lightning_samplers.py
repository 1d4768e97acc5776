"""Samplers of torch that draw with replacement: weights and numbers hold, also after a stop."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset, WeightedRandomSampler

from tests.engines.contract import Case, require_stop_changes_nothing, undisturbed

pytest.importorskip("lightning.pytorch", reason="the extra lightning is not installed")
from lightning.pytorch import LightningModule

from trainops.kinds.loop.lightning import lightning_loop

pytestmark = pytest.mark.slow
NUMBERS = TensorDataset(torch.arange(8.0)[:, None])
WEIGHTS = [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 5.0]
EPOCHS = 2
SAMPLERS = {
    "weighted": lambda: WeightedRandomSampler(WEIGHTS, 200),
    "with replacement": lambda: RandomSampler(NUMBERS, replacement=True, num_samples=200),
}


class Seen(LightningModule):
    """Counts how often it is given each number."""

    def __init__(self, sampler):
        super().__init__()
        self.net = nn.Linear(1, 1)
        self.register_buffer("counts", torch.zeros(len(NUMBERS)))
        self.sampler = sampler

    def training_step(self, batch):
        for number in batch[0][:, 0].long():
            self.counts[number] += 1
        return self.net(batch[0]).square().mean()

    def train_dataloader(self):
        return DataLoader(NUMBERS, batch_size=20, sampler=self.sampler)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


@pytest.fixture(params=SAMPLERS)
def sampled(request, monkeypatch):
    """Train by a loader with this sampler."""
    make_sampler = SAMPLERS[request.param]  # not `request`: all it refers to would be looked into
    loop = lightning_loop(lambda *_: Seen(make_sampler()))
    monkeypatch.setattr("trainops.recipes.Recipe.builder", lambda _: loop)
    parameters = {"max_epochs": EPOCHS}
    config = {"recipe": "lit", "parameters": parameters, "monitor": "train_loss", "threads": 1}
    return request.param, Case("loop", "sampled", config, ())


def test_as_many_are_drawn_in_proportion_to_the_weights_and_the_same_after_a_stop(
    sampled, tmp_path
):
    name, case = sampled
    expected = undisturbed(case, tmp_path)
    model = expected.checkpoints[-1].path / "model.pt"
    counts = torch.load(model, weights_only=True)["counts"]  # noqa: TID251
    assert counts.sum() == 200 * EPOCHS
    assert expected.progress[-1].step == 10 * EPOCHS
    if name == "weighted":
        assert counts[:2].sum() == 0
        assert counts[7] > 150 and counts[2:7].min() > 15  # of 200 and of 40 that are expected
    else:
        assert counts.min() > 20  # of 50
    require_stop_changes_nothing(case, tmp_path / "stops", expected, [1, 7, 10, 13])
