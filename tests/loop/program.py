"""A training loop whose structure is a parameter: loops in loops, with work and yields anywhere."""

from typing import Any

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import Strict


class Parameters(Strict):
    """`body` holds "work", "yield" and loops: {"name", "length", "workers", "data", "body"}."""

    body: list[Any] = Field(default_factory=list)


RECIPE = Recipe(
    name="program",
    kind="loop",
    label="Program",
    description="For tests",
    parameters="tests.loop.program:Parameters",
    build="tests.loop.program_loop:train",
    example={"recipe": "program", "threads": 1},
)
