"""The config of a backtest."""

from collections.abc import Mapping
from datetime import date
from typing import Any, ClassVar, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field

from trainops.market.columns import PriceColumns, find_columns
from trainops.market.pipeline import Interval
from trainops.recipe_config import RecipeConfig
from trainops.runtime.columns import DescribedColumns
from trainops.runtime.config import CheckpointConfig, DatasetId, OperationConfig, Strict
from trainops.runtime.errors import ConfigError


class BacktestCheckpointConfig(CheckpointConfig):
    """When checkpoints are taken: after bars or seconds, whichever is first."""

    every_bars: int = Field(10_000, ge=1, description="Bars between checkpoints.")
    least_seconds: float = Field(
        1.0, ge=0, description="Minimum seconds between bar-triggered checkpoints."
    )


class CommissionConfig(Strict):
    """The commission of a filled order: fixed + relative * value, but at least the minimum."""

    relative: float = Field(0.0, ge=0, le=0.1, description="Fraction of the filled value.")
    fixed: float = Field(
        0.0, ge=0, description="Amount per filled order, in the account's currency."
    )
    minimum: float = Field(
        0.0, ge=0, description="Minimum per filled order, in the account's currency."
    )


class SizingConfig(Strict):
    """How large a position is where the strategy leaves it open."""

    by: Literal["fraction", "units"] = Field(
        "fraction",
        description="fraction: share of the equity, times the leverage; units: number of units.",
    )
    amount: float = Field(
        1.0, gt=0, le=1e12, description="Fraction of the equity, or number of units."
    )
    whole_units: bool = Field(True, description="Round positions down to whole units.")
    fixed_commission_for_each_unit: bool = Field(
        False, description="Reserve the fixed commission for each unit, as backtesting.py does."
    )


class BacktestConfig(RecipeConfig):
    """A strategy, the prices it meets, and the broker's terms."""

    kind: ClassVar[str] = "backtest"
    FORKABLE: ClassVar[frozenset[str]] = OperationConfig.FORKABLE | {"dataset", "finish", "until"}

    dataset: DatasetId = Field(description="Price series: an uploaded table of bars.")
    columns: PriceColumns = PriceColumns()
    symbol: str = Field(
        "asset", min_length=1, max_length=40, description="Name of the traded symbol."
    )
    symbols: list[str] = Field(
        default_factory=list,
        max_length=1000,
        description="Symbols to trade from a table of several; by default all.",
    )
    timezone: str = Field("UTC", description="Time zone in which days begin.")
    start: date | None = Field(None, strict=False, description="First day to trade.")
    until: date | None = Field(
        None, strict=False, description="First day that is no longer traded (exclusive end)."
    )
    resample: Interval | None = Field(
        None, description="Bar interval to aggregate the dataset's bars to; by default unchanged."
    )
    cash: float = Field(10_000.0, gt=0, le=1e15, description="Initial cash of the account.")
    commission: CommissionConfig = CommissionConfig()
    spread: float = Field(
        0.0,
        ge=0,
        lt=0.5,
        description="Relative difference between bid and ask; each fill pays half of it.",
    )
    slippage: float = Field(
        0.0, ge=0, lt=0.5, description="Relative price change against each market and stop order."
    )
    margin: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Required equity as a share of a position's value (1/leverage).",
    )
    maintenance_margin: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of the position value at or below which equity triggers liquidation "
        "of all positions.",
    )
    fill: Literal["next_open", "same_close"] = Field(
        "next_open", description="Price at which market orders decided at a bar's close are filled."
    )
    sizing: SizingConfig = SizingConfig()
    finish: Literal["close", "open", "hold"] = Field(
        "close",
        description="Open trades at the end: close at the last close, open: as an order placed "
        "one bar before the end, hold: held at market value.",
    )
    execution: Literal["auto", "vector", "event"] = Field(
        "auto", description="auto: vector if the strategy supports it, otherwise event."
    )
    chunk_bars: int | None = Field(
        None,
        ge=1,
        le=10_000_000,
        description="Bars between safe points; by default 1/200 of all bars.",
    )
    monitor: Literal["equity", "drawdown"] = Field(
        "equity", description="Metric that selects the best checkpoint."
    )
    mode: Literal["min", "max"] = Field(
        "max", description="Whether lower (min) or higher (max) values of the metric are better."
    )
    checkpoint: BacktestCheckpointConfig = BacktestCheckpointConfig()

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        config = super().parse(raw)
        errors = {}
        if config.sizing.by == "fraction" and config.sizing.amount > 1:
            errors["sizing.amount"] = (
                f"got {config.sizing.amount:g}; allowed: at most 1 (for more, lower margin)"
            )
        if config.maintenance_margin > config.margin:
            errors["maintenance_margin"] = (
                f"got {config.maintenance_margin:g}; allowed: at most the margin, {config.margin:g}"
            )
        if config.start and config.until and config.until <= config.start:
            errors["until"] = f"got {config.until}; must be after start, {config.start}"
        if not _is_timezone(config.timezone):
            errors["timezone"] = f"got {config.timezone!r}; allowed: names such as Europe/Berlin"
        if len(set(config.symbols)) < len(config.symbols):
            errors["symbols"] = f"got {config.symbols}; allowed: each symbol once"
        if errors:
            raise ConfigError(errors)
        return config

    def check_columns(self, columns: DescribedColumns) -> Mapping[str, str]:
        kinds = {column["name"]: column["type"] for column in columns.get(self.dataset, ())}
        _, problems = find_columns(kinds, self.columns) if kinds else ({}, {})
        return {**super().check_columns(columns), **problems}


def _is_timezone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True
