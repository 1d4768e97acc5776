"""A training loop whose model is divided over the ranks."""

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import Strict


class Parameters(Strict):
    epochs: int = Field(2, ge=1)
    is_plain: bool = False  # adds no noise
    is_early: bool = False  # makes the optimizer before the model is divided
    keeps_rows: bool = False  # puts a parameter into a dict that is kept


RECIPE = Recipe(
    name="divided",
    kind="loop",
    label="Divided",
    description="For tests",
    parameters="tests.ranks.divided:Parameters",
    build="tests.ranks.divided_loop:train",
    example={"recipe": "divided", "threads": 1},
)
