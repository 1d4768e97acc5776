"""A recipe whose every ingredient can be chosen: the loss, whether there is a validation, noise."""

from typing import Literal

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import Strict


class Parameters(Strict):
    examples: int = Field(23, ge=1, le=1000)
    validation: int = Field(9, ge=0, le=1000, description="Validation examples; 0: no validation")
    loss: Literal["entropy", "squared", "smooth", "mixed"] = "entropy"
    loss_factor: float = Field(1.0, gt=0)
    dropout: float = Field(0.0, ge=0, lt=1)


RECIPE = Recipe(
    name="drawn",
    kind="training",
    label="Drawn",
    description="",
    parameters="tests.training_oracle.drawn:Parameters",
    build="tests.training_oracle.drawn_model:build",
    example={"recipe": "drawn"},
)
