"""What the clients of the digits recipe train."""

import torch
from sklearn.datasets import load_digits
from torch import nn

from trainops.engines.federated.ingredients import Federation, Group
from trainops.engines.federated.recipes.digits import FederatedDigitsParameters
from trainops.engines.federated.recipes.layers import norm
from trainops.engines.training.data import split
from trainops.engines.training.ingredients import Context, Examples, Ingredients, accuracy
from trainops.engines.training.recipes.digits_model import (
    MAX_PIXEL,
    SPLIT_SEED,
    VALIDATION_FRACTION,
)


def build(parameters: FederatedDigitsParameters, context: Context) -> Federation:
    digits = load_digits()
    images = torch.from_numpy(digits.images).to(torch.float32).unsqueeze(1) / MAX_PIXEL
    targets = torch.from_numpy(digits.target).to(torch.int64)
    train, validation = split(len(targets), VALIDATION_FRACTION, SPLIT_SEED)
    names = tuple(str(digit) for digit in range(10))
    classes = Group(owners=targets[train], names=names)
    return Federation(
        ingredients=Ingredients(
            model=_cnn(parameters) if parameters.network == "cnn" else _mlp(parameters),
            train=Examples((images[train],), targets[train]),
            validation=Examples((images[validation],), targets[validation]),
            loss=nn.functional.cross_entropy,
            measures={"accuracy": accuracy},
            description={"classes": list(names)},
        ),
        classes=classes,
        groups={"label": classes},
    )


def _mlp(parameters: FederatedDigitsParameters) -> nn.Module:
    """Return a network from (N, 1, 8, 8) pixels in 0..1 to (N, 10) scores."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, parameters.hidden),
        nn.ReLU(),
        nn.Dropout(parameters.dropout),
        nn.Linear(parameters.hidden, 10),
    )


def _cnn(parameters: FederatedDigitsParameters) -> nn.Module:
    channels = parameters.channels
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1),
        *norm(parameters.norm, channels),
        nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3, padding=1),
        *norm(parameters.norm, 2 * channels),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(parameters.dropout),
        nn.Linear(2 * channels * 4 * 4, parameters.hidden),
        nn.ReLU(),
        nn.Linear(parameters.hidden, 10),
    )
