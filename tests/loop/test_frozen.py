"""Parts of a training module that are frozen in an epoch are not trained in it."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from trainops.kinds.loop.module import TrainingModule, module_loop
from trainops.kinds.loop.settings import ModuleParameters


class Tied(TrainingModule):
    """Two layers with one weight, the second of which is frozen in the first epoch."""

    def __init__(self, run, parameters):
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.second.weight = self.first.weight
        self.weights = [self.first.weight.clone()]

    def loaders(self, run):
        return {"train": run.loader("train", TensorDataset(torch.ones(2, 2)), batch_size=2)}

    def optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

    def frozen(self, epoch):
        return ["second"] if epoch == 0 else []

    def training_step(self, batch):
        self.weights.append(self.first.weight.clone())
        return self.second(self.first(batch[0])).square().mean()


def test_a_shared_weight_is_frozen_by_each_of_its_names(follow):
    made = []

    def train(run, _):
        def make(*given):
            made.append(Tied(*given))
            return made[-1]

        yield from module_loop(make)(run, ModuleParameters.parse({"epochs": 3}))

    follow(train)
    begin, first, second, third = made[0].weights
    assert torch.equal(begin, first) and torch.equal(first, second)  # before and after epoch 0
    assert not torch.equal(second, third)


class Frozen(Tied):
    """A frozen layer with an optimizer of its own."""

    def __init__(self, run, parameters):
        super().__init__(run, parameters)
        self.second = nn.Linear(2, 2)

    def optimizers(self):
        parts = {"first": self.first, "second": self.second}
        return {name: torch.optim.SGD(each.parameters(), 0.1) for name, each in parts.items()}

    def training_step(self, batch, optimizer):
        return super().training_step(batch)


@pytest.mark.parametrize("field", ["max_grad_norm", "max_grad_value"])
def test_gradients_are_clipped_beside_an_optimizer_whose_parameters_are_frozen(follow, field):
    def train(run, _):
        given = ModuleParameters.parse({"epochs": 2, field: 0.1})
        yield from module_loop(Frozen)(run, given)

    assert follow(train).progress[-1].step == 2


def unfreezing(run, _):
    """Train the second layer from the second epoch on."""
    net = run.keep("model", nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)))
    net[1].requires_grad_(False)
    optimizer = run.keep("optimizer", torch.optim.SGD(net.parameters(), 0.1))
    batches = run.loader("train", TensorDataset(torch.ones(4, 2)), batch_size=2)
    for epoch in run.epochs(3):
        if epoch == 1:
            net[1].requires_grad_(True)
        for (inputs,) in batches:
            optimizer.zero_grad()
            net(inputs).square().mean().backward()
            optimizer.step()
            yield {}


def test_parameters_that_a_loop_unfreezes_are_trained_after_a_resume(require_exact):
    require_exact(unfreezing)


class Switching(Tied):
    """Freezes its first bias in a step of each epoch, until the next one begins."""

    def __init__(self, run, parameters):
        super().__init__(run, parameters)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def loaders(self, run):
        return {"train": run.loader("train", TensorDataset(torch.ones(6, 2)), batch_size=2)}

    def frozen(self, epoch):
        return ["second.bias"] if epoch == 1 else []

    def training_step(self, batch):
        if self.steps % 3 == 1:
            self.first.bias.requires_grad_(False)
        self.steps += 1
        return super().training_step(batch)


def test_parameters_that_a_module_freezes_by_itself_stay_frozen_after_a_resume(require_exact):
    def train(run, _):
        yield from module_loop(Switching)(run, ModuleParameters.parse({"epochs": 3}))

    require_exact(train)


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_fork_within_an_epoch_freezes_by_its_own_code(follow, is_frozen):
    def of(parts):
        class Freezing(Switching):
            def frozen(self, epoch):
                return parts

        def train(run, _):
            yield from module_loop(Freezing)(run, ModuleParameters.parse({"epochs": 1}))

        return train

    def bias(done):
        path = done.checkpoints[-1].path / "model.pt"
        return torch.load(path, weights_only=True)["second.bias"]  # noqa: TID251

    first = follow(of([] if is_frozen else ["second.bias"]), at=1)
    fork = follow(of(["second.bias"] if is_frozen else []), resume=first.checkpoints, number=2)
    assert torch.equal(bias(first), bias(fork)) == is_frozen
