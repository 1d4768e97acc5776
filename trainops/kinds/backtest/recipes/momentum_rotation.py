"""Holds the symbols that rose most."""

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import Strict


class MomentumRotationParameters(Strict):
    """How momentum is measured, and how often the portfolio is looked over."""

    lookback: int = Field(60, ge=1, le=100_000, description="Bars over which momentum is measured.")
    every: int = Field(20, ge=1, le=100_000, description="Bars between rebalancings.")
    top: int = Field(2, ge=1, le=1000, description="Number of symbols to hold, in equal shares.")
    only_rising: bool = Field(
        True, description="Hold only symbols that rose, even if fewer than top."
    )


RECIPE = Recipe(
    name="momentum_rotation",
    kind="backtest",
    label="Momentum rotation",
    description="Holds the symbols that rose most",
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
