"""Holds those of several symbols that rose most."""

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import Strict


class MomentumRotationParameters(Strict):
    """How momentum is measured, and how often the portfolio is looked over."""

    lookback: int = Field(60, ge=1, le=100_000, description="Bars over which a rise is measured")
    every: int = Field(20, ge=1, le=100_000, description="Bars between two looks")
    top: int = Field(2, ge=1, le=1000, description="Symbols to hold, in equal shares")
    only_rising: bool = Field(True, description="Hold less where fewer of them rose at all")


RECIPE = Recipe(
    name="momentum_rotation",
    kind="backtest",
    label="Momentum rotation",
    description="Holds those of several symbols that rose most",
    parameters="trainops.kinds.backtest.recipes.momentum_rotation:MomentumRotationParameters",
    build="trainops.kinds.backtest.recipes.momentum_rotation_model:build",
    example={
        "recipe": "momentum_rotation",
        "dataset": "ds_0000000000000000",
        "parameters": {"lookback": 60, "every": 20, "top": 2},
        "cash": 100_000.0,
        "commission": {"relative": 0.001},
    },
)
