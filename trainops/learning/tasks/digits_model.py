"""What the digits recipe trains."""

import torch
from sklearn.datasets import load_digits
from torch import nn

from trainops.learning.data import split
from trainops.learning.ingredients import Context, Examples, Ingredients, accuracy
from trainops.learning.tasks.digits import DigitsParameters
from trainops.learning.tasks.layers import small_cnn

SPLIT_SEED = 0  # the same examples are held out whatever the seed, so that runs can be compared
VALIDATION_FRACTION = 0.2
MAX_PIXEL = 16.0
SHAPE, CLASSES = (1, 8, 8), 10


def build(parameters: DigitsParameters, context: Context) -> Ingredients:
    return digits_for(
        small_cnn(
            SHAPE, CLASSES, channels=parameters.channels, hidden=parameters.hidden,
            dropout=parameters.dropout,
        )
    )  # fmt: skip


def digits_for(model: nn.Module) -> Ingredients:
    """Return the digits, for a network from (N, 1, 8, 8) pixels in 0..1 to (N, 10) scores."""
    digits = load_digits()
    images = torch.from_numpy(digits.images).to(torch.float32).unsqueeze(1) / MAX_PIXEL
    targets = torch.from_numpy(digits.target).to(torch.int64)
    train, validation = split(len(targets), VALIDATION_FRACTION, SPLIT_SEED)
    return Ingredients(
        model=model,
        train=Examples((images[train],), targets[train]),
        validation=Examples((images[validation],), targets[validation]),
        loss=nn.functional.cross_entropy,
        measures={"accuracy": accuracy},
        description={"classes": [str(digit) for digit in range(CLASSES)]},
    )
