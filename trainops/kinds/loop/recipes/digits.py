"""Handwritten digits by a training loop: an example to copy. The loop is in digits_loop."""

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import Strict


class Parameters(Strict):
    epochs: int = Field(20, ge=1, le=10_000, description="Number of passes over the examples.")
    batch_size: int = Field(32, ge=1, le=1024, description="Number of examples per batch.")
    learning_rate: float = Field(1e-3, gt=0, le=1, description="Learning rate of AdamW.")
    width: int = Field(64, ge=1, le=4096, description="Number of hidden units.")


RECIPE = Recipe(
    name="digits_loop",
    kind="loop",
    label="Handwritten digits, own loop",
    description="Classifies the 8 x 8 digits of scikit-learn by a loop written as a function",
    parameters="trainops.kinds.loop.recipes.digits:Parameters",
    build="trainops.kinds.loop.recipes.digits_loop:train",
    example={"recipe": "digits_loop", "parameters": {"epochs": 60}, "threads": 1},
)
