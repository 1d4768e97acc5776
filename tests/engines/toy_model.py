import random

import numpy as np
import torch
from torch import nn

from tests.engines import moments
from tests.engines.toy import ToyParameters
from trainops.learning.data import split
from trainops.learning.ingredients import Context, Examples, Ingredients

CLASSES = 3
measured_offsets = []  # what was measured instead of being remembered; for the tests to look at


class Noise(nn.Module):
    """Draws from Python's, NumPy's and torch's global streams while training."""

    def __init__(self, parameters: ToyParameters) -> None:
        super().__init__()
        self.parameters = parameters
        self.batches = nn.Buffer(torch.zeros((), dtype=torch.int64))

    def forward(self, values):
        if not self.training:
            return values
        self.batches += 1
        if self.batches == self.parameters.raise_at_batch:
            raise RuntimeError("boom")
        if self.batches == self.parameters.explode_at_batch:
            return values * float("nan")
        noise = random.random() + np.random.standard_normal()  # noqa: NPY002, S311
        return nn.functional.dropout(values, 0.2) * (1 + 0.1 * noise)


def build(parameters: ToyParameters, context: Context) -> Ingredients:
    moments.arm()
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(parameters.examples, 4, generator=generator)
    targets = (inputs[:, 0] > 0).long() + (inputs[:, 1] > 0.5).long()
    constants = dict(context.constants)
    if parameters.remember and not constants:
        measured_offsets.append(0.25)
        constants = {"offset": 0.25}
    train, validation = split(len(targets), 0.25, context.seed)
    return Ingredients(
        model=nn.Sequential(
            nn.Linear(4, parameters.width, bias=False), nn.BatchNorm1d(parameters.width),
            Noise(parameters), nn.ReLU(), nn.Linear(parameters.width, CLASSES),
        ),
        train=Examples((inputs[train] + constants.get("offset", 0.0),), targets[train]),
        validation=Examples((inputs[validation],), targets[validation]),
        loss=nn.functional.cross_entropy,
        measures={"accuracy": lambda outputs, truth: (outputs.argmax(1) == truth).float()},
        optimizers=_two if parameters.two_optimizers else None,
        constants=constants,
    )  # fmt: skip


def _two(model):
    return [
        torch.optim.SGD(model[:2].parameters(), lr=0.05, momentum=0.9),
        torch.optim.Adagrad(model[2:].parameters(), lr=0.05),
    ]
