"""Buys at the first bar and holds to the last."""

from trainops.kinds.backtest.recipes.entries import EntryParameters
from trainops.recipes import Recipe


class BuyAndHoldParameters(EntryParameters):
    """The order that enters."""


RECIPE = Recipe(
    name="buy_and_hold",
    kind="backtest",
    label="Buy and hold",
    description="Buys at the first bar and holds to the last",
    parameters="trainops.kinds.backtest.recipes.buy_and_hold:BuyAndHoldParameters",
    build="trainops.kinds.backtest.recipes.buy_and_hold_model:build",
    example={
        "recipe": "buy_and_hold",
        "dataset": "ds_0000000000000000",
        "parameters": {},
        "cash": 10_000.0,
        "commission": {"relative": 0.001},
    },
)
