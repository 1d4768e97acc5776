"""Early stopping of training modules by metrics that are not always finite."""

import math

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from trainops.kinds.loop.module import TrainingModule, module_loop
from trainops.kinds.loop.settings import ModuleParameters

SETTINGS = {"epochs": 9, "patience": 2, "stopping_metric": "val_score"}


def measuring(scores, mode):
    """Return a loop whose validation of each epoch gives the next score."""

    class Scored(TrainingModule):
        def __init__(self, run, parameters):
            super().__init__()
            self.net = nn.Linear(2, 1)
            self.register_buffer("epochs", torch.zeros((), dtype=torch.int64))

        def loaders(self, run):
            data = TensorDataset(torch.ones(2, 2))
            return {name: run.loader(name, data, batch_size=2) for name in ("train", "validation")}

        def optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

        def training_step(self, batch):
            self.epochs += 1
            return self.net(batch[0]).square().mean()

        def validation_step(self, batch):
            loss = self.net(batch[0]).square().mean()
            return {"loss": loss, "val_score": scores[int(self.epochs) - 1]}

    def train(run, _):
        settings = ModuleParameters.parse(SETTINGS | {"stopping_mode": mode})
        yield from module_loop(Scored)(run, settings)

    return train


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("scores", "mode", "num_epochs"),
    [
        ([NAN, 5, 4, 3, NAN, 4, 1, 1, 1], "min", 6),
        ([NAN, 5, 6, 7, 7, 7, 7, 7, 7], "max", 6),
        ([-INF, 5, 4, 3, 3, 3, 1, 1, 1], "min", 6),
        ([NAN, NAN, NAN, 1, 1, 1, 1, 1, 1], "min", 6),
        ([NAN] * 9, "min", 9),
        ([3, NAN, 2, NAN, NAN, 1, 1, 1, 1], "min", 5),
    ],
)
def test_a_value_that_is_not_finite_is_never_the_best(follow, scores, mode, num_epochs):
    done = follow(measuring(scores, mode))
    assert sum("val_score" in each.metrics for each in done.progress) == num_epochs
