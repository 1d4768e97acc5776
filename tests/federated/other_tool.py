"""A recipe of the shape that the federated files of the other tool have."""

from trainops.recipes import Recipe
from trainops.runtime.config import Strict


class Parameters(Strict):
    pass


RECIPE = Recipe(
    name="other_tool",
    kind="federated",
    label="Other tool",
    description="A network as another tool federated it",
    parameters="tests.federated.other_tool:Parameters",
    build="tests.federated.other_tool_model:build",
)
