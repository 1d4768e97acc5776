"""A recipe of a third party: what the README shows, and what the contract is tried on."""

from dataclasses import replace

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import Strict


class ToyParameters(Strict):
    examples: int = Field(50, ge=2, le=1000)
    width: int = Field(6, ge=1, le=64)
    explode_at_batch: int | None = Field(None, ge=1, description="The loss becomes NaN here")
    raise_at_batch: int | None = Field(None, ge=1)
    remember: bool = Field(False, description="Keep a constant that was measured on the data")
    two_optimizers: bool = False


RECIPE = Recipe(
    name="toy",
    kind="training",
    label="Toy",
    description="Draws from every random stream there is",
    parameters="tests.engines.toy:ToyParameters",
    build="tests.engines.toy_model:build",
    example={"recipe": "toy"},
)
NOT_A_RECIPE = "digits"
DIGITS_AGAIN = Recipe(
    name="digits",
    kind="training",
    label="",
    description="",
    parameters="tests.engines.toy:ToyParameters",
    build="tests.engines.toy_model:build",
)
TOY_AGAIN = replace(RECIPE, label="Another toy")
WITHOUT_PARAMETERS = replace(RECIPE, name="unfinished", parameters="tests.engines.toy:Nothing")
