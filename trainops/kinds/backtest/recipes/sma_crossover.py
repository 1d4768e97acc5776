"""Follows crossings of two simple moving averages."""

from pydantic import Field, ValidationInfo, field_validator

from trainops.kinds.backtest.recipes.entries import EntryParameters, require_slower
from trainops.recipes import Recipe


class SmaCrossoverParameters(EntryParameters):
    """A faster and a slower average."""

    fast: int = Field(10, ge=1, le=10_000, description="Period of the fast average in bars.")
    slow: int = Field(20, ge=2, le=10_000, description="Period of the slow average in bars.")

    @field_validator("slow")
    @classmethod
    def _slow_is_slower(cls, slow: int, known: ValidationInfo) -> int:
        return require_slower(slow, known.data.get("fast"))


RECIPE = Recipe(
    name="sma_crossover",
    kind="backtest",
    label="SMA crossover",
    description="Follows crossings of two simple moving averages",
    parameters="trainops.kinds.backtest.recipes.sma_crossover:SmaCrossoverParameters",
    build="trainops.kinds.backtest.recipes.sma_crossover_model:build",
    example={
        "recipe": "sma_crossover",
        "dataset": "ds_0000000000000000",
        "parameters": {"fast": 10, "slow": 20},
        "cash": 10_000.0,
        "commission": {"relative": 0.001},
    },
)
