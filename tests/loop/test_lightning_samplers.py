"""Samplers of torch that draw with replacement: weights and numbers hold, also after a stop."""

import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from tests.engines.contract import Case, require_stop_changes_nothing, undisturbed

pytest.importorskip("lightning.pytorch", reason="the extra lightning is not installed")
from lightning.pytorch import LightningModule

from trainops.kind import KINDS
from trainops.kinds.loop.lightning import lightning_loop
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.job import closed_after

pytestmark = pytest.mark.slow
NUMBERS = TensorDataset(torch.arange(8.0)[:, None])
WEIGHTS = [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 5.0]
EPOCHS = 2


class Neighbours(BatchSampler):
    """Batches of a drawn number and the next one."""

    def __iter__(self):
        for number in self.sampler:
            yield [number, (number + 1) % len(NUMBERS)]


SOME = [2, 3, 4, 5, 6, 7, 7, 7]
BATCHES = {
    "own batches": lambda: Neighbours(SubsetRandomSampler([0, 2, 4, 6]), 2, drop_last=False),
    "batches of a sampler": lambda: BatchSampler(SubsetRandomSampler(SOME), 2, drop_last=False),
}
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
        if isinstance(self.sampler, BatchSampler):
            return DataLoader(NUMBERS, batch_sampler=self.sampler)
        return DataLoader(NUMBERS, batch_size=20, sampler=self.sampler)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


class OneByOne(Seen):
    """Has the batches that version 0.1.0 took where a loader has a BatchSampler."""

    def train_dataloader(self):
        return DataLoader(NUMBERS)


class Both(Seen):
    def train_dataloader(self):
        return [super().train_dataloader(), DataLoader(NUMBERS)]

    def training_step(self, batch):
        return super().training_step(batch[0])


@pytest.mark.parametrize("kind", [Seen, Both, OneByOne])
def test_a_state_of_a_version_that_ignored_batch_samplers_is_refused(kind, monkeypatch):
    config = KINDS["loop"].parse_config({"recipe": "lit", "parameters": {"max_epochs": EPOCHS}})

    def job_of(kind):
        loop = lightning_loop(lambda *_: kind(BatchSampler(RandomSampler(NUMBERS), 2, False)))
        monkeypatch.setattr("trainops.recipes.Recipe.builder", lambda _: loop)
        return closed_after(KINDS["loop"].make_job(config, {}))

    with job_of(OneByOne) as before:
        before.advance()
        state = freeze(before.state_dict())
    del state["progress"]["follows_batch_samplers"]
    with job_of(kind) as after:
        if kind is OneByOne:
            after.load_state_dict(state)
            after.advance()
            assert after.step == 2
            return
        problem = "the loader 'train' has a batch sampler, and .* one example; allowed: a new"
        with pytest.raises(IncompatibleState, match=problem):
            after.load_state_dict(state)


@pytest.mark.parametrize("kind", [Seen, Both])
def test_a_state_of_such_a_version_that_has_not_begun_is_trained(kind, monkeypatch):
    config = KINDS["loop"].parse_config({"recipe": "lit", "parameters": {"max_epochs": EPOCHS}})
    loop = lightning_loop(lambda *_: kind(BatchSampler(RandomSampler(NUMBERS), 2, False)))
    monkeypatch.setattr("trainops.recipes.Recipe.builder", lambda _: loop)
    with closed_after(KINDS["loop"].make_job(config, {})) as before:
        state = freeze(before.state_dict())
    del state["progress"]["follows_batch_samplers"]
    for steps in (2, 100):  # within the first epoch, and to the end
        with closed_after(KINDS["loop"].make_job(config, {})) as after:
            after.load_state_dict(state)
            while not after.is_finished and after.step < steps:
                after.advance()
            state = freeze(after.state_dict())
    assert after.is_finished and after.epoch == EPOCHS


@pytest.fixture(params=SAMPLERS | BATCHES)
def sampled(request, monkeypatch):
    """Train by a loader with this sampler."""
    make_sampler = (SAMPLERS | BATCHES)[
        request.param
    ]  # not `request`: all it refers to would be looked into
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
    if name in BATCHES:
        drawn = SOME if name == "batches of a sampler" else range(len(NUMBERS))
        assert counts.tolist() == [EPOCHS * list(drawn).count(n) for n in range(len(NUMBERS))]
        assert expected.progress[-1].step == len(NUMBERS) // 2 * EPOCHS
        require_stop_changes_nothing(case, tmp_path / "stops", expected, [1, 4, 6])
        return
    assert counts.sum() == 200 * EPOCHS
    assert expected.progress[-1].step == 10 * EPOCHS
    if name == "weighted":
        assert counts[:2].sum() == 0
        assert counts[7] > 150 and counts[2:7].min() > 15  # of 200 and of 40 that are expected
    else:
        assert counts.min() > 20  # of 50
    require_stop_changes_nothing(case, tmp_path / "stops", expected, [1, 7, 10, 13])
