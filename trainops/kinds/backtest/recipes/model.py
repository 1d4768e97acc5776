"""Trades on what a training of the recipe `price_direction` learned."""

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from trainops.kinds.backtest.recipes.entries import EntryParameters
from trainops.recipes import Recipe
from trainops.runtime.config import IsModel

# What a model learned from and what it is to trade are told in the same fields.
OF_A_SERIES = ("dataset", "columns", "symbols", "timezone", "resample")


class ModelParameters(EntryParameters):
    """Whose model it is, and how sure it must be."""

    operation: Annotated[str, IsModel("training", "price_direction", OF_A_SERIES)] = Field(
        description="The COMPLETED training whose model it is"
    )
    weights: Literal["best", "last"] = Field(
        "best", description="Those of its best epoch, or of its last"
    )
    enter: float = Field(
        0.1,
        ge=0,
        lt=100,
        description="A score above it: long, below its negative: short. The score is the "
        "probability of up less that of down, or of a regression the return it expects, in "
        "standard deviations",
    )
    leave: float = Field(
        0.0, gt=-100, lt=100, description="A long position is given up where the score is below it"
    )
    bars: Literal["unseen", "all"] = Field(
        "unseen", description="all: trade the bars that it learned from, too"
    )

    @field_validator("leave")
    @classmethod
    def _below(cls, leave: float, told: ValidationInfo) -> float:
        enter = told.data.get("enter")
        if enter is not None and leave > enter:
            raise ValueError(f"must be at most enter ({enter:g})")
        return leave


RECIPE = Recipe(
    name="model",
    kind="backtest",
    label="Model",
    description="Buys where a model that was trained here expects a rise, sells where a fall",
    parameters="trainops.kinds.backtest.recipes.model:ModelParameters",
    build="trainops.kinds.backtest.recipes.model_model:build",
    example={
        "recipe": "model",
        "dataset": "ds_0000000000000000",
        "parameters": {"operation": "op_training_20260101_000000_000000", "enter": 0.1},
        "cash": 10_000.0,
        "commission": {"relative": 0.001},
    },
)
