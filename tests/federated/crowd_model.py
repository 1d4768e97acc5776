import random
import time

import numpy as np
import torch
from torch import nn

from tests.federated.crowd import CrowdParameters
from trainops.kinds.federated.ingredients import Federation, Group
from trainops.learning.data import split
from trainops.learning.ingredients import Context, Examples, Ingredients, accuracy


class Noise(nn.Module):
    """Draws from Python's and NumPy's global streams while training; counts, as buffers."""

    def __init__(self, parameters):
        super().__init__()
        self.parameters = parameters
        self.batches = nn.Buffer(torch.zeros((), dtype=torch.int64))

    def forward(self, values):
        if not self.training:
            return values
        self.batches += 1
        if self.batches == self.parameters.explode_in_batch:
            return values * float("nan")
        noise = random.random() + np.random.standard_normal()  # noqa: NPY002, S311
        return values * (1 + 0.1 * noise)


class Counting(nn.Module):
    """Goes by how many batches it has seen, which a model's own state does not have."""

    def __init__(self):
        super().__init__()
        self.batches = nn.Buffer(torch.zeros(()), persistent=False)

    def forward(self, values):
        if self.training:
            self.batches += 1
        return values * (1 + 0.01 * self.batches)


class Deciding(nn.Module):
    """Computes what the numbers decide, which nobody can do for many models at once."""

    def forward(self, values):
        return values if values.sum() > 0 else -values


class Slow(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def forward(self, values):
        if self.training:
            time.sleep(self.seconds)
        return values


def build(parameters: CrowdParameters, context: Context) -> Federation:
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(parameters.examples, 4, generator=generator)
    targets = (inputs[:, 0] > 0).long() + (inputs[:, 1] > 0.5).long()
    constants = dict(context.constants)
    if parameters.measured and not constants:
        constants = {"offset": random.random()}  # noqa: S311 - of other data, another number
    train, validation = split(len(targets), 0.25, context.seed)
    first, last = nn.Linear(4, 5).requires_grad_(not parameters.frozen), nn.Linear(5, 3)
    noisy = [nn.BatchNorm1d(5), Noise(parameters)] if parameters.norm else []
    if parameters.tied:
        noisy += [nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5)]
        noisy[-1].weight = noisy[-3].weight
    noisy += [Counting()] if parameters.unsaved else []
    noisy += [Deciding()] if parameters.decides else []
    noisy += [Slow(parameters.batch_seconds)] if parameters.batch_seconds else []
    return Federation(
        ingredients=Ingredients(
            model=nn.Sequential(first, *noisy, nn.ReLU(), nn.Dropout(parameters.dropout), last),
            train=Examples((inputs[train] + constants.get("offset", 0.0),), targets[train]),
            validation=Examples((inputs[validation],), targets[validation]),
            loss=nn.functional.cross_entropy,
            measures={"accuracy": accuracy},
            constants=constants,
            optimizers=_optimizers if parameters.own_optimizers else None,
            schedulers=_schedulers if parameters.own_schedulers else None,
        ),
        classes=Group(owners=targets[train], names=("low", "middle", "high")),
    )


def _optimizers(model):
    return [torch.optim.Adagrad(model.parameters(), 0.1)]


def _schedulers(optimizers, total_steps):
    return [torch.optim.lr_scheduler.StepLR(each, total_steps) for each in optimizers]
