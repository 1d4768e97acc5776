"""The light half of a recipe: its parameters. Imports no torch."""

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import Strict


class IrisParameters(Strict):
    width: int = Field(16, ge=1, le=512, description="Units of the hidden layer")


RECIPE = Recipe(
    name="iris",
    kind="training",
    label="Iris",
    description="Classifies 150 iris flowers of three species by four measurements",
    parameters="flowers.iris:IrisParameters",
    build="flowers.iris_model:build",
    example={"recipe": "iris", "epochs": 40, "batch_size": 16, "learning_rate": 0.01},
)
