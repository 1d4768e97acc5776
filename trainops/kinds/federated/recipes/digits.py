"""Handwritten digits, spread over clients."""

from typing import Literal

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import Strict


class FederatedDigitsParameters(Strict):
    """The shape of the small network that every client trains."""

    network: Literal["mlp", "cnn"] = Field("mlp", description="Architecture of the network.")
    hidden: int = Field(64, ge=1, le=4096, description="Units of the hidden layer.")
    channels: int = Field(
        16, ge=2, le=256, multiple_of=2, description="Channels of the first convolution (cnn only)."
    )
    norm: Literal["none", "group", "batch"] = Field(
        "none", description="Normalization layers (cnn only); batch is not allowed with privacy."
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="Dropout rate.")


RECIPE = Recipe(
    name="federated_digits",
    kind="federated",
    label="Handwritten digits, federated",
    description="Classifies 1,797 scanned digits of 8 x 8 pixels (scikit-learn), "
    "distributed over clients",
    parameters="trainops.kinds.federated.recipes.digits:FederatedDigitsParameters",
    build="trainops.kinds.federated.recipes.digits_model:build",
    example={
        "recipe": "federated_digits",
        "rounds": 60,  # some 20 seconds: long enough to watch, cancel and resume
        "clients": 10,
        "local_epochs": 2,
        "learning_rate": 0.1,
        "threads": 1,  # so small a network gains nothing from two
        "partition": {"by": "dirichlet", "alpha": 0.5},
        "monitor": "val_accuracy",
        "mode": "max",
    },
)
