"""Recipes of LightningModules, for tests."""

from typing import Literal

from pydantic import Field

from trainops.kinds.loop.trainer_settings import LightningParameters
from trainops.recipes import Recipe


class Parameters(LightningParameters):
    module: Literal["automatic", "manual", "several"] = "automatic"
    num_workers: int = 0
    scheduler: Literal["none", "step", "epoch", "plateau", "seldom"] = "none"
    iterable: Literal["", "plain", "stateful", "anew"] = ""
    combined: Literal["", "list", "min_size", "max_size", "max_size_cycle"] = ""
    damaged: bool = False
    callbacks: list[str] = Field(default_factory=list)


RECIPE = Recipe(
    name="lit",
    kind="loop",
    label="Lightning",
    description="For tests",
    parameters="tests.loop.lit:Parameters",
    build="tests.loop.lit_module:train",
    example={"recipe": "lit", "threads": 1},
)
