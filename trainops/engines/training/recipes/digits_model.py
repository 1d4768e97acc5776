"""What the digits recipe trains."""

import torch
from sklearn.datasets import load_digits
from torch import nn

from trainops.engines.training.data import split
from trainops.engines.training.ingredients import Context, Examples, Ingredients, accuracy
from trainops.engines.training.recipes.digits import DigitsParameters

SPLIT_SEED = 0  # the same examples are held out whatever the seed, so that runs can be compared
VALIDATION_FRACTION = 0.2
MAX_PIXEL = 16.0


def build(parameters: DigitsParameters, context: Context) -> Ingredients:
    digits = load_digits()
    images = torch.from_numpy(digits.images).to(torch.float32).unsqueeze(1) / MAX_PIXEL
    targets = torch.from_numpy(digits.target).to(torch.int64)
    train, validation = split(len(targets), VALIDATION_FRACTION, SPLIT_SEED)
    return Ingredients(
        model=_network(parameters),
        train=Examples((images[train],), targets[train]),
        validation=Examples((images[validation],), targets[validation]),
        loss=nn.functional.cross_entropy,
        measures={"accuracy": accuracy},
        description={"classes": [str(digit) for digit in range(10)]},
    )


def _network(parameters: DigitsParameters) -> nn.Module:
    """Return a network from (N, 1, 8, 8) pixels in 0..1 to (N, 10) scores."""
    channels = parameters.channels
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(parameters.dropout),
        nn.Linear(2 * channels * 4 * 4, parameters.hidden),
        nn.ReLU(),
        nn.Dropout(parameters.dropout),
        nn.Linear(parameters.hidden, 10),
    )
