"""The training module of `tests.loop.pair` with faults in its steps, for several ranks."""

from tests.loop.pair import Parameters
from trainops.recipes import Recipe

RECIPE = Recipe(
    name="replicas",
    kind="loop",
    label="Replicas",
    description="For tests",
    parameters=f"{Parameters.__module__}:{Parameters.__name__}",
    build="tests.ranks.replicas_module:train",
    example={"recipe": "replicas", "threads": 1},
)
