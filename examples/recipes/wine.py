"""A recipe of your own, first half: its parameters. Imports no torch."""

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import Strict


class WineParameters(Strict):
    width: int = Field(32, ge=1, le=512, description="Units of the hidden layer")
    dropout: float = Field(0.2, ge=0, lt=1, description="Share of units left out while training")


RECIPE = Recipe(
    name="wine",
    kind="training",
    label="Wine",
    description="Tells from 13 measurements which of three cultivars a wine is made of",
    parameters="examples.recipes.wine:WineParameters",
    build="examples.recipes.wine_model:build",
    example={"recipe": "wine", "epochs": 40, "batch_size": 16, "learning_rate": 0.003},
)
