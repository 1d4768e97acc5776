"""Follows crossings of the MACD line and its signal line."""

from pydantic import Field, ValidationInfo, field_validator

from trainops.kinds.backtest.recipes.entries import EntryParameters, require_slower
from trainops.recipes import Recipe


class MacdParameters(EntryParameters):
    """Two averages, and the signal's."""

    fast: int = Field(12, ge=1, le=10_000, description="Period of the fast average in bars.")
    slow: int = Field(26, ge=2, le=10_000, description="Period of the slow average in bars.")
    signal: int = Field(9, ge=1, le=10_000, description="Period of the signal line in bars.")

    @field_validator("slow")
    @classmethod
    def _slow_is_slower(cls, slow: int, known: ValidationInfo) -> int:
        return require_slower(slow, known.data.get("fast"))


RECIPE = Recipe(
    name="macd",
    kind="backtest",
    label="MACD",
    description="Follows crossings of the MACD line and its signal line",
    parameters="trainops.kinds.backtest.recipes.macd:MacdParameters",
    build="trainops.kinds.backtest.recipes.macd_model:build",
    example={
        "recipe": "macd",
        "dataset": "ds_0000000000000000",
        "parameters": {"fast": 12, "slow": 26, "signal": 9},
        "cash": 10_000.0,
        "commission": {"relative": 0.001},
    },
)
