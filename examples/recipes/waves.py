"""Sounds of three waves, told apart; what is logged is in waves_loop."""

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import Strict


class WavesParameters(Strict):
    epochs: int = Field(10, ge=1, le=1000, description="Number of passes over the sounds.")
    learning_rate: float = Field(3e-3, gt=0, le=1, description="Learning rate of Adam.")


RECIPE = Recipe(
    name="waves",
    kind="loop",
    label="Sounds of waves",
    description="Tells sounds of sines, squares and saws apart, and logs what it hears and sees",
    parameters="examples.recipes.waves:WavesParameters",
    build="examples.recipes.waves_loop:train",
    example={"recipe": "waves", "threads": 1},
)
