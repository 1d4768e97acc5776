"""Follows a close beyond the highest high or lowest low of the previous bars."""

from pydantic import Field

from trainops.kinds.backtest.recipes.entries import EntryParameters
from trainops.recipes import Recipe


class DonchianBreakoutParameters(EntryParameters):
    """The channel."""

    period: int = Field(
        20, ge=1, le=10_000, description="Number of previous bars in the entry channel."
    )
    exit_period: int = Field(
        10, ge=1, le=10_000, description="Number of previous bars in the exit channel."
    )


RECIPE = Recipe(
    name="donchian_breakout",
    kind="backtest",
    label="Donchian breakout",
    description="Follows a close beyond the highest high or lowest low of the previous bars",
    parameters="trainops.kinds.backtest.recipes.donchian_breakout:DonchianBreakoutParameters",
    build="trainops.kinds.backtest.recipes.donchian_breakout_model:build",
    example={
        "recipe": "donchian_breakout",
        "dataset": "ds_0000000000000000",
        "parameters": {"period": 20, "exit_period": 10},
        "cash": 10_000.0,
        "commission": {"relative": 0.001},
    },
)
