"""A recipe of your own, second half: the model and the examples."""

import torch
from sklearn.datasets import load_wine
from torch import nn

from examples.recipes.wine import WineParameters
from trainops.learning.data import split
from trainops.learning.ingredients import Context, Examples, Ingredients, accuracy


def build(parameters: WineParameters, context: Context) -> Ingredients:
    wines = load_wine()
    inputs = torch.tensor(wines.data, dtype=torch.float32)
    targets = torch.tensor(wines.target)
    train, validation = split(len(targets), 0.25, context.seed)
    inputs = (inputs - inputs[train].mean(dim=0)) / inputs[train].std(dim=0)
    return Ingredients(
        model=nn.Sequential(
            nn.Linear(13, parameters.width),
            nn.ReLU(),
            nn.Dropout(parameters.dropout),
            nn.Linear(parameters.width, 3),
        ),
        train=Examples((inputs[train],), targets[train]),
        validation=Examples((inputs[validation],), targets[validation]),
        loss=nn.functional.cross_entropy,
        measures={"accuracy": accuracy},
        description={"classes": list(map(str, wines.target_names))},
    )
