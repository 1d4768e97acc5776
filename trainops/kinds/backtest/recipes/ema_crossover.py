"""Follows crossings of two exponential moving averages."""

from pydantic import Field, ValidationInfo, field_validator

from trainops.kinds.backtest.recipes.entries import EntryParameters, require_slower
from trainops.recipes import Recipe


class EmaCrossoverParameters(EntryParameters):
    """A faster and a slower average."""

    fast: int = Field(12, ge=1, le=10_000, description="Period of the fast average in bars.")
    slow: int = Field(26, ge=2, le=10_000, description="Period of the slow average in bars.")

    @field_validator("slow")
    @classmethod
    def _slow_is_slower(cls, slow: int, known: ValidationInfo) -> int:
        return require_slower(slow, known.data.get("fast"))


RECIPE = Recipe(
    name="ema_crossover",
    kind="backtest",
    label="EMA crossover",
    description="Follows crossings of two exponential moving averages",
    parameters="trainops.kinds.backtest.recipes.ema_crossover:EmaCrossoverParameters",
    build="trainops.kinds.backtest.recipes.ema_crossover_model:build",
    example={
        "recipe": "ema_crossover",
        "dataset": "ds_0000000000000000",
        "parameters": {"fast": 12, "slow": 26},
        "cash": 10_000.0,
        "commission": {"relative": 0.001},
    },
)
