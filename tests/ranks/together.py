"""A training loop of several ranks, with everything in it that a rank has of its own."""

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import Strict


class Parameters(Strict):
    epochs: int = Field(2, ge=1)
    drop_last: bool = False
    is_plain: bool = False  # draws no random numbers but the weights
    damaged: list[int] = Field(default_factory=list)  # examples that cannot be decoded
    skip_undecodable: bool = True


RECIPE = Recipe(
    name="together",
    kind="loop",
    label="Together",
    description="For tests",
    parameters="tests.ranks.together:Parameters",
    build="tests.ranks.together_loop:train",
    example={"recipe": "together", "threads": 1},
)
