from collections import OrderedDict

import torch
from torch import nn

from tests.formats.recipe import Parameters
from trainops.learning.data import split
from trainops.learning.ingredients import Context, Examples, Ingredients


def build(parameters: Parameters, context: Context) -> Ingredients:
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(parameters.examples + 20, 10, generator=generator)
    targets = (inputs[:, 0] > 0).long() + (inputs[:, 1] > 0.5).long()
    train, validation = split(len(targets), 20 / len(targets), context.seed)
    return Ingredients(
        model=nn.Sequential(
            OrderedDict(
                fc1=nn.Linear(10, parameters.width),
                bn1=nn.BatchNorm1d(parameters.width),
                act=nn.ReLU(),
                drop=nn.Dropout(0.1),
                fc2=nn.Linear(parameters.width, 3),
            )
        ),
        train=Examples((inputs[train],), targets[train]),
        validation=Examples((inputs[validation],), targets[validation]),
        loss=nn.functional.cross_entropy,
        optimizers=_two if parameters.optimizers == 2 else None,
    )


def _two(model):
    return [
        torch.optim.AdamW(model.parameters(), lr=1e-3),
        torch.optim.SGD(model.fc2.parameters(), lr=0.01, momentum=0.9),
    ]
