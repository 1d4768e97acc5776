"""Buys below the lower Bollinger band, sells above the upper, exits at the middle."""

from pydantic import Field

from trainops.kinds.backtest.recipes.entries import EntryParameters
from trainops.recipes import Recipe


class BollingerParameters(EntryParameters):
    """The bands."""

    period: int = Field(20, ge=2, le=10_000, description="Lookback of the bands in bars.")
    width: float = Field(
        2.0, gt=0, le=10, description="Distance of each band in standard deviations."
    )


RECIPE = Recipe(
    name="bollinger",
    kind="backtest",
    label="Bollinger reversion",
    description="Buys below the lower Bollinger band, sells above the upper, exits at the middle",
    parameters="trainops.kinds.backtest.recipes.bollinger:BollingerParameters",
    build="trainops.kinds.backtest.recipes.bollinger_model:build",
    example={
        "recipe": "bollinger",
        "dataset": "ds_0000000000000000",
        "parameters": {"period": 20, "width": 2.0},
        "cash": 10_000.0,
        "commission": {"relative": 0.001},
    },
)
