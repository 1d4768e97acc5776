"""A strategy that gives random orders on every symbol, the same in each run of one `chance`."""

from typing import Literal

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import Strict


class RandomOrdersParameters(Strict):
    chance: int = Field(0, description="Which orders")
    rule: Literal["orders", "targets"] = Field(
        "orders", description="targets: `switch` alone, in both forms"
    )
    activity: float = Field(0.3, gt=0, le=1, description="Orders for each bar and symbol")
    units: float = Field(1.0, gt=0, description="Scale of orders in units")
    looks: bool = Field(False, description="Read the whole account at every bar")
    dice: bool = Field(False, description="Draw from Python's global stream, too")


RECIPE = Recipe(
    name="random_orders",
    kind="backtest",
    label="Random orders",
    description="Gives every kind of order at random",
    parameters="tests.backtest.random_orders:RandomOrdersParameters",
    build="tests.backtest.random_orders_model:build",
    example={"recipe": "random_orders", "dataset": "ds_0000000000000000"},
)
