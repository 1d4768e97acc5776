"""Training with fp16 and a loss scale equals a plain PyTorch loop with a GradScaler, bit for bit.

Run on the CPU, where torch scales losses, too; trainings themselves have fp16 on GPUs only.
"""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from trainops.kinds.loop.module import Schedule, TrainingModule, module_loop, training
from trainops.kinds.loop.settings import ModuleParameters
from trainops.runtime import reproducibility

SEED = 7  # that of the contract
INPUTS = torch.linspace(-1, 1, 16).reshape(8, 2)
BATCH_SIZE, NUM_EPOCHS, RATE = 4, 3, 0.5


class Scaled(TrainingModule):
    """A body and a head with an optimizer each; the body is frozen in some epochs."""

    frozen_epochs = ()

    def __init__(self, run, parameters):
        super().__init__()
        self.body, self.head = nn.Linear(2, 3), nn.Linear(3, 1)

    def loaders(self, run):
        options = {"batch_size": BATCH_SIZE, "shuffle": False}
        return {"train": run.loader("train", TensorDataset(INPUTS), **options)}

    def optimizers(self):
        parts = {"body": self.body, "head": self.head}
        return {
            name: torch.optim.SGD(each.parameters(), RATE, momentum=0.9)
            for name, each in parts.items()
        }

    def schedulers(self, optimizers, extent):
        return [
            Schedule(torch.optim.lr_scheduler.StepLR(each, 1, 0.9)) for each in optimizers.values()
        ]

    def frozen(self, epoch):
        return ["body"] if epoch in self.frozen_epochs else []

    def training_step(self, batch, optimizer):
        return self.head(self.body(batch[0])).float().square().mean()


def plain(frozen_epochs, clip):
    """Return the weights and the state of the scaler by a loop that a person would write."""
    reproducibility.seed_all(SEED)
    net = Scaled(None, None)
    optimizers = net.optimizers()
    schedules = [each.scheduler for each in net.schedulers(optimizers, None)]
    scaler = torch.amp.GradScaler("cpu")
    for epoch in range(NUM_EPOCHS):
        is_frozen = epoch in frozen_epochs
        net.body.requires_grad_(not is_frozen)
        for inputs in INPUTS.split(BATCH_SIZE):
            for name, optimizer in optimizers.items():
                net.zero_grad()
                with torch.autocast("cpu", torch.float16):
                    loss = net.training_step([inputs], name)
                scaler.scale(loss).backward()
                if name == "head" or not is_frozen:
                    scaler.unscale_(optimizer)
                    clip(optimizer.param_groups[0]["params"])
                    scaler.step(optimizer)
                else:
                    optimizer.step()  # does nothing
            scaler.update()
            for schedule in schedules:
                schedule.step()
    return net.state_dict(), scaler.state_dict()


CLIPPING = {
    "not at all": ({}, lambda weights: None),
    "norm": ({"max_grad_norm": 0.1}, lambda weights: nn.utils.clip_grad_norm_(weights, 0.1)),
    "value": ({"max_grad_value": 0.01}, lambda weights: nn.utils.clip_grad_value_(weights, 0.01)),
}


@pytest.fixture
def trained(follow, monkeypatch):
    """Train with fp16; return the states of the module, the scaler and the first schedule."""
    monkeypatch.setattr(training, "require_precision", lambda *_: None)

    def run(made, **settings):
        def train(run, _):
            given = {"epochs": NUM_EPOCHS, "precision": "fp16", **settings}
            yield from module_loop(made)(run, ModuleParameters.parse(given))

        path = follow(train, device="cpu").checkpoints[-1].path
        names = ("model", "scaler", "schedule_0")
        return [torch.load(path / f"{name}.pt", weights_only=True) for name in names]  # noqa: TID251

    return run


def require_equal(one, other):
    assert one.keys() == other.keys()
    assert all(torch.equal(each, other[name]) for name, each in one.items()), (one, other)


@pytest.mark.parametrize("name", CLIPPING)
def test_gradients_are_clipped_after_they_are_unscaled(trained, name):
    given, clip = CLIPPING[name]
    weights, scale, *_ = trained(Scaled, **given)
    expected, of_scaler = plain((), clip)
    require_equal(weights, expected)
    assert scale == of_scaler


@pytest.mark.parametrize("name", CLIPPING)
@pytest.mark.parametrize("frozen_epochs", [(0,), (1, 2)])
def test_an_optimizer_whose_parameters_are_frozen_takes_no_scaled_step(
    trained, monkeypatch, name, frozen_epochs
):
    given, clip = CLIPPING[name]
    monkeypatch.setattr(Scaled, "frozen_epochs", frozen_epochs)
    weights, scale, *_ = trained(Scaled, **given)
    expected, of_scaler = plain(frozen_epochs, clip)
    require_equal(weights, expected)
    assert scale == of_scaler


def test_a_step_of_frozen_parameters_only_changes_no_scale_but_the_schedule(trained):
    class Alone(Scaled):
        frozen_epochs = (1,)

        def turns(self, step, optimizers):
            return ["head"] if step == 0 else ["body"]

    _, scale, schedule = trained(Alone)
    steps_per_epoch = len(INPUTS) // BATCH_SIZE
    assert scale["_growth_tracker"] == (NUM_EPOCHS - 1) * steps_per_epoch
    assert schedule["last_epoch"] == NUM_EPOCHS * steps_per_epoch - 1
