"""Medical-like images whose organ is to be outlined, spread over clients: nothing to download."""

from typing import Literal

from pydantic import Field

from trainops.engines.config import Strict
from trainops.engines.recipes import Recipe


class SegmentationParameters(Strict):
    """The phantoms, and the small U-Net that outlines them."""

    images: int = Field(240, ge=10, le=100_000, description="Phantoms, a fifth of them held out")
    size: int = Field(32, ge=16, le=256, multiple_of=4, description="Pixels of a side")
    noise: float = Field(0.15, ge=0, le=2, description="Of the scanner")
    sites: int = Field(4, ge=1, le=100, description="Scanners with a brightness of their own")
    channels: int = Field(8, ge=2, le=128, multiple_of=2, description="Of the first level")
    norm: Literal["none", "group", "batch"] = Field(
        "group", description="batch cannot be had with privacy"
    )


RECIPE = Recipe(
    name="federated_segmentation",
    kind="federated",
    label="Segmentation, federated",
    description="A U-Net outlines the organ in generated phantoms; scanners differ by site (Dice)",
    parameters="trainops.engines.federated.recipes.segmentation:SegmentationParameters",
    build="trainops.engines.federated.recipes.segmentation_model:build",
    example={
        "recipe": "federated_segmentation",
        "rounds": 20,
        "local_epochs": 3,
        "optimizer": "adam",
        "learning_rate": 0.01,
        "batch_size": 8,
        "partition": {"by": "column", "column": "site"},
        "monitor": "val_dice",
        "mode": "max",
    },
)
