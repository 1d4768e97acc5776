"""Buys below the lower Bollinger band, sells above the upper one, until the middle."""

from pydantic import Field

from trainops.kinds.backtest.recipes.entries import EntryParameters
from trainops.recipes import Recipe


class BollingerParameters(EntryParameters):
    """The bands."""

    period: int = Field(20, ge=2, le=10_000, description="Bars that the bands look back")
    width: float = Field(2.0, gt=0, le=10, description="Standard deviations to each side")


RECIPE = Recipe(
    name="bollinger",
    kind="backtest",
    label="Bollinger reversion",
    description="Buys below the lower Bollinger band, sells above the upper one, until the middle",
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
