"""Where a price goes next: what it learns can be traded by the backtest recipe `model`."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from trainops.market.columns import PriceColumns, find_columns
from trainops.market.pipeline import FeatureParameters, Interval
from trainops.recipes import Recipe
from trainops.runtime.config import DatasetId, Strict


class PriceDirectionParameters(Strict):
    """Which prices, what of them is looked at, and what is to be foretold."""

    dataset: DatasetId = Field(description="The price series: an uploaded table of bars")
    columns: PriceColumns = PriceColumns()
    symbols: list[str] = Field(
        default_factory=list,
        max_length=1000,
        description="Of a table of several symbols: those to learn from; all, if none is named",
    )
    timezone: str = Field("UTC", description="In which days begin")
    resample: Interval | None = Field(
        None, description="Coarser bars, made from those of the dataset"
    )
    task: Literal["classification", "regression"] = Field(
        "classification", description="regression: the return itself, not only its direction"
    )
    label: Literal["forward_return", "zigzag"] = Field(
        "forward_return",
        description="zigzag: whether the leg that follows leads up or down",
    )
    horizon: int = Field(10, ge=1, le=100_000, description="Forward return: over so many bars")
    threshold: float = Field(
        0.0, ge=0, lt=1, description="Forward return: smaller moves are a class of their own, flat"
    )
    reversal: float = Field(
        0.05, gt=0, lt=1, description="Zigzag: a leg ends where the price came back by this share"
    )
    train_until: date | None = Field(
        None, strict=False, description="The first day that is not learned from"
    )
    validate_until: date | None = Field(
        None, strict=False, description="The first day that is not validated on"
    )
    validation_fraction: float = Field(
        0.2, gt=0, lt=1, description="Without a day: the share of the bars, the last ones"
    )
    features: FeatureParameters = FeatureParameters()
    hidden_sizes: list[int] = Field(
        default_factory=lambda: [32, 16], max_length=16, description="Units of each hidden layer"
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="Share of units left out while training")

    @field_validator("label")
    @classmethod
    def _fits_task(cls, label: str, told: ValidationInfo) -> str:
        if label == "zigzag" and told.data.get("task") == "regression":
            raise ValueError("a zigzag has directions only; allowed with task: classification")
        return label

    @field_validator("validate_until")
    @classmethod
    def _later(cls, day: date | None, told: ValidationInfo) -> date | None:
        first = told.data.get("train_until")
        if day is not None and first is not None and day <= first:
            raise ValueError(f"must be after train_until ({first})")
        return day

    @field_validator("features")
    @classmethod
    def _something(cls, features: FeatureParameters) -> FeatureParameters:
        if features.is_empty:
            raise ValueError("at least one feature is needed")
        return features

    def check_columns(
        self, columns: Mapping[str, Sequence[Mapping[str, Any]]]
    ) -> Mapping[str, str]:
        kinds = {column["name"]: column["type"] for column in columns.get(self.dataset, ())}
        return find_columns(kinds, self.columns)[1] if kinds else {}


RECIPE = Recipe(
    name="price_direction",
    kind="training",
    label="Price direction",
    description="Learns where a price goes next; the backtest recipe Model trades on it",
    parameters="trainops.kinds.training.recipes.price_direction:PriceDirectionParameters",
    build="trainops.kinds.training.recipes.price_direction_model:build",
    example={
        "recipe": "price_direction",
        "parameters": {"dataset": "ds_0000000000000000", "horizon": 10},
        "epochs": 20,
        "batch_size": 256,
        "early_stopping_patience": 5,
    },
)
