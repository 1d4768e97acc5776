"""A training module whose parameters are divided over the ranks."""

from tests.loop.pair import Parameters
from trainops.recipes import Recipe

RECIPE = Recipe(
    name="divided_module",
    kind="loop",
    label="Divided module",
    description="For tests",
    parameters=f"{Parameters.__module__}:{Parameters.__name__}",
    build="tests.ranks.divided_module:train",
    example={"recipe": "divided_module", "threads": 1},
)
