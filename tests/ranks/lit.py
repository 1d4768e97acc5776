"""LightningModules with faults in their steps, for several ranks."""

from typing import Literal

from trainops.kinds.loop.trainer_settings import LightningParameters
from trainops.recipes import Recipe


class Parameters(LightningParameters):
    module: Literal[
        "automatic",
        "closure",
        "manual",
        "windows",
        "two",
        "divisible",
        "freezing",
        "gathering",
        "keeping",
        "measured",
        "listing",
        "correlated",
    ] = "automatic"
    scheduler: Literal["none", "step", "epoch", "plateau"] = "none"
    batch_size: int = 4
    damaged: bool = False
    iterable: Literal["", "plain", "sharded"] = ""
    fault: Literal["", "frozen", "plain_backward", "sync_norm", "stops"] = ""


RECIPE = Recipe(
    name="ranked_lit",
    kind="loop",
    label="Lightning",
    description="For tests",
    parameters="tests.ranks.lit:Parameters",
    build="tests.ranks.lit_module:train",
    example={"recipe": "ranked_lit", "threads": 1},
)
