"""An environment of Gymnasium, by its id."""

from typing import Any

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import Strict


class GymnasiumParameters(Strict):
    # Gymnasium would import a module that an id names ("package:Name-v0"); no colon, no import.
    id: str = Field(
        "CartPole-v1", pattern=r"^[A-Za-z0-9_.+/-]{1,80}$", description="Id of the environment."
    )
    options: dict[str, str | float | bool | None] = Field(
        {}, description="Keyword arguments of the constructor, such as is_slippery of FrozenLake."
    )
    max_steps: int | None = Field(
        None,
        ge=1,
        description="Maximum steps per episode; by default the limit of the environment.",
    )


EXAMPLE: dict[str, Any] = {"recipe": "gymnasium", "parameters": {"id": "CartPole-v1"}}
RECIPE = Recipe(
    name="gymnasium",
    kind="rl",
    label="Gymnasium",
    description="A Gymnasium environment with discrete actions, by id",
    parameters="trainops.kinds.rl.recipes.gymnasium_id:GymnasiumParameters",
    build="trainops.kinds.rl.gymnasium_world:build",
    example=EXAMPLE,
)
