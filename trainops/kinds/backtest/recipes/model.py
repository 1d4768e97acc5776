"""Trades on what a training of the recipe `price_direction` learned."""

import re
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from trainops.kinds.backtest.recipes.entries import EntryParameters
from trainops.recipes import Recipe
from trainops.runtime.config import IsModel
from trainops.runtime.monitors import METRIC

BEST_BY = "best:"  # before a metric
WEIGHTS = re.compile(rf"^(best|last|{BEST_BY}{METRIC.pattern})$")
# What a model learned from and what it is to trade are fields of the same names.
OF_A_SERIES = ("dataset", "columns", "symbols", "timezone", "resample")


class ModelParameters(EntryParameters):
    """Whose model it is, and how sure it must be."""

    operation: Annotated[str, IsModel("training", "price_direction", OF_A_SERIES)] = Field(
        description="COMPLETED training operation whose model to use."
    )
    weights: str = Field(
        "best",
        description="best: weights of the best epoch; best:METRIC: of the best epoch by a "
        "metric in `monitors` of the training; last: of the last epoch.",
        json_schema_extra={"pattern": WEIGHTS.pattern},
    )
    enter: float = Field(
        0.1,
        ge=0,
        lt=100,
        description="Score above which to go long, and below whose negative to go short. The "
        "score is P(up) - P(down), or for a regression the predicted return in "
        "standard deviations.",
    )
    leave: float = Field(
        0.0, gt=-100, lt=100, description="Score below which a long position is closed."
    )
    bars: Literal["unseen", "all"] = Field(
        "unseen",
        description="unseen: trade only bars that the model was neither trained nor validated on; "
        "all: trade every bar.",
    )

    @field_validator("weights")
    @classmethod
    def _named(cls, weights: str) -> str:
        if not WEIGHTS.fullmatch(weights):
            raise ValueError("allowed: best, last, best:METRIC")
        return weights

    @field_validator("leave")
    @classmethod
    def _below(cls, leave: float, info: ValidationInfo) -> float:
        enter = info.data.get("enter")
        if enter is not None and leave > enter:
            raise ValueError(f"must be at most enter ({enter:g})")
        return leave


RECIPE = Recipe(
    name="model",
    kind="backtest",
    label="Model",
    description="Trades on the predictions of a model trained here",
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
