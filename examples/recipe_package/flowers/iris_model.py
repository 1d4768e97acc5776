"""The heavy half of a recipe: its model and its examples."""

import torch
from sklearn.datasets import load_iris
from torch import nn

from flowers.iris import IrisParameters
from trainops.learning.data import split
from trainops.learning.ingredients import Context, Examples, Ingredients, accuracy


def build(parameters: IrisParameters, context: Context) -> Ingredients:
    flowers = load_iris()
    inputs = torch.tensor(flowers.data, dtype=torch.float32)
    targets = torch.tensor(flowers.target)
    train, validation = split(len(targets), 0.25, context.seed)
    inputs = (inputs - inputs[train].mean(dim=0)) / inputs[train].std(dim=0)
    return Ingredients(
        model=nn.Sequential(
            nn.Linear(4, parameters.width), nn.ReLU(), nn.Linear(parameters.width, 3)
        ),
        train=Examples((inputs[train],), targets[train]),
        validation=Examples((inputs[validation],), targets[validation]),
        loss=nn.functional.cross_entropy,
        measures={"accuracy": accuracy},
        description={"classes": list(map(str, flowers.target_names))},
    )
