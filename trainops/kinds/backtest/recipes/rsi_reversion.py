"""Buys oversold and sells overbought prices, by the relative strength index."""

from pydantic import Field

from trainops.kinds.backtest.recipes.entries import EntryParameters
from trainops.recipes import Recipe


class RsiReversionParameters(EntryParameters):
    """From which index on a price went too far, and where it is back."""

    period: int = Field(14, ge=2, le=10_000, description="Lookback of the RSI in bars.")
    oversold: float = Field(30.0, gt=0, lt=50, description="RSI below which to buy.")
    overbought: float = Field(70.0, gt=50, lt=100, description="RSI above which to sell.")
    middle: float = Field(50.0, gt=0, lt=100, description="RSI at which positions are closed.")


RECIPE = Recipe(
    name="rsi_reversion",
    kind="backtest",
    label="RSI reversion",
    description="Buys oversold and sells overbought prices, by the relative strength index",
    parameters="trainops.kinds.backtest.recipes.rsi_reversion:RsiReversionParameters",
    build="trainops.kinds.backtest.recipes.rsi_reversion_model:build",
    example={
        "recipe": "rsi_reversion",
        "dataset": "ds_0000000000000000",
        "parameters": {"period": 14},
        "cash": 10_000.0,
        "commission": {"relative": 0.001},
    },
)
