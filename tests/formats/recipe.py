"""A recipe of the shape that the training file of the other tool has."""

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import Strict


class Parameters(Strict):
    examples: int = Field(304, ge=4)
    width: int = 20
    optimizers: int = Field(1, ge=1, le=2)


RECIPE = Recipe(
    name="foreign",
    kind="training",
    label="Foreign",
    description="A network as another tool trained it",
    parameters="tests.formats.recipe:Parameters",
    build="tests.formats.recipe_model:build",
)
