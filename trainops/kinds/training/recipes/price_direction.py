"""Where a price goes next: what it learns can be traded by the backtest recipe `model`."""

from collections.abc import Mapping
from datetime import date
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from trainops.market.columns import PriceColumns, find_columns
from trainops.market.pipeline import FeatureParameters, Interval
from trainops.recipes import Recipe
from trainops.runtime.columns import DescribedColumns
from trainops.runtime.config import DatasetId, Strict


class PriceDirectionParameters(Strict):
    """The price series, its features and the label to predict."""

    dataset: DatasetId = Field(description="Price series: an uploaded table of bars.")
    columns: PriceColumns = PriceColumns()
    symbols: list[str] = Field(
        default_factory=list,
        max_length=1000,
        description="Symbols to train on from a table of several; by default all.",
    )
    timezone: str = Field("UTC", description="Time zone in which days begin.")
    resample: Interval | None = Field(
        None, description="Bar interval to aggregate the dataset's bars to; by default unchanged."
    )
    task: Literal["classification", "regression"] = Field(
        "classification",
        description="classification predicts the direction, regression the return.",
    )
    label: Literal["forward_return", "zigzag"] = Field(
        "forward_return",
        description="forward_return: return over the horizon; zigzag: direction of the next "
        "zigzag leg.",
    )
    horizon: int = Field(
        10, ge=1, le=100_000, description="Bars of the forward return (forward_return only)."
    )
    threshold: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Absolute return below which the class is flat (forward_return only).",
    )
    reversal: float = Field(
        0.05, gt=0, lt=1, description="Relative reversal that ends a leg (zigzag only)."
    )
    train_until: date | None = Field(
        None, strict=False, description="First day after the training data (exclusive end)."
    )
    validate_until: date | None = Field(
        None, strict=False, description="First day after the validation data (exclusive end)."
    )
    validation_fraction: float = Field(
        0.2,
        gt=0,
        lt=1,
        description="Share of the bars used for validation, if train_until is not set.",
    )
    test_fraction: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of the latest bars that are neither trained nor validated on, if "
        "validate_until is not set: a backtest can trade them.",
    )
    features: FeatureParameters = FeatureParameters()
    hidden_sizes: list[int] = Field(
        default_factory=lambda: [32, 16], max_length=16, description="Units of each hidden layer."
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout rate.")

    @field_validator("label")
    @classmethod
    def _fits_task(cls, label: str, info: ValidationInfo) -> str:
        if label == "zigzag" and info.data.get("task") == "regression":
            raise ValueError("zigzag has only directions; allowed with task: classification")
        return label

    @field_validator("validate_until")
    @classmethod
    def _later(cls, day: date | None, info: ValidationInfo) -> date | None:
        first = info.data.get("train_until")
        if day is not None and first is not None and day <= first:
            raise ValueError(f"must be after train_until ({first})")
        return day

    @field_validator("test_fraction")
    @classmethod
    def _leaves_training(cls, share: float, info: ValidationInfo) -> float:
        validated = info.data.get("validation_fraction", 0.0)
        if info.data.get("train_until") is None and share + validated >= 1:
            raise ValueError(f"must be below 1 with validation_fraction ({validated:g}) added")
        return share

    @field_validator("features")
    @classmethod
    def _something(cls, features: FeatureParameters) -> FeatureParameters:
        if features.is_empty:
            raise ValueError("at least one feature is required")
        return features

    def check_columns(self, columns: DescribedColumns) -> Mapping[str, str]:
        kinds = {column["name"]: column["type"] for column in columns.get(self.dataset, ())}
        return find_columns(kinds, self.columns)[1] if kinds else {}


RECIPE = Recipe(
    name="price_direction",
    kind="training",
    label="Price direction",
    description="Predicts the next price move; the backtest recipe Model trades on it",
    parameters="trainops.kinds.training.recipes.price_direction:PriceDirectionParameters",
    build="trainops.kinds.training.recipes.price_direction_model:build",
    example={
        "recipe": "price_direction",
        "parameters": {"dataset": "ds_0000000000000000", "horizon": 10, "test_fraction": 0.2},
        "epochs": 20,
        "batch_size": 256,
        "early_stopping_patience": 5,
    },
)
