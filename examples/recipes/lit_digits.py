"""Handwritten digits by a LightningModule; its code is in lit_digits_module."""

from pydantic import Field

from trainops.kinds.loop.trainer_settings import LightningParameters
from trainops.recipes import Recipe


class Parameters(LightningParameters):
    batch_size: int = Field(32, ge=1, le=1024, description="Number of examples per batch.")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="Learning rate of Adam.")


RECIPE = Recipe(
    name="lit_digits",
    kind="loop",
    label="Handwritten digits, Lightning",
    description="Classifies the 8 x 8 digits of scikit-learn by a LightningModule",
    parameters="examples.recipes.lit_digits:Parameters",
    build="examples.recipes.lit_digits_module:train",
    example={"recipe": "lit_digits", "parameters": {"max_epochs": 10}, "threads": 1},
)
