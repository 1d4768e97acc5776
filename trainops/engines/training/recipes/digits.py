"""Handwritten digits: the recipe that works out of the box."""

from pydantic import Field

from trainops.engines.config import Strict
from trainops.engines.recipes import Recipe


class DigitsParameters(Strict):
    """The shape of the small convolutional network."""

    channels: int = Field(16, ge=1, le=256, description="Of the first convolution; then doubled")
    hidden: int = Field(64, ge=1, le=4096, description="Units before the last layer")
    dropout: float = Field(0.25, ge=0, lt=1, description="Share of units left out while training")


RECIPE = Recipe(
    name="digits",
    kind="training",
    label="Handwritten digits",
    description="1,797 scanned digits of 8 x 8 pixels (scikit-learn's); a small CNN reads them",
    parameters="trainops.engines.training.recipes.digits:DigitsParameters",
    build="trainops.engines.training.recipes.digits_model:build",
    example={
        "recipe": "digits",
        "epochs": 150,  # some 20 seconds: long enough to watch, cancel and resume
        "threads": 1,  # so small a network gains nothing from two, and waits where cores are busy
        "batch_size": 64,
        "learning_rate": 2e-3,
        "optimizer": "adamw",
        "scheduler": "cosine",
        "checkpoint": {"every_epochs": 5},
    },
)
