"""What a backtest can be told."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, ClassVar, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field

from trainops.market.columns import PriceColumns, find_columns
from trainops.market.pipeline import Interval
from trainops.recipe_config import RecipeConfig
from trainops.runtime.config import CheckpointConfig, DatasetId, OperationConfig, Strict
from trainops.runtime.errors import ConfigError


class BacktestCheckpointConfig(CheckpointConfig):
    """When checkpoints are taken: after bars or seconds, whichever is first."""

    every_bars: int = Field(10_000, ge=1, description="A checkpoint after so many bars")
    least_seconds: float = Field(
        1.0, ge=0, description="So many seconds lie between two that are due after bars"
    )


class CommissionConfig(Strict):
    """The commission of a filled order: fixed + relative * value, but at least the minimum."""

    relative: float = Field(
        0.0, ge=0, le=0.1, description="Fraction of the value that an order fills"
    )
    fixed: float = Field(
        0.0, ge=0, description="Amount for each filled order, in the account's currency"
    )
    minimum: float = Field(0.0, ge=0, description="Minimum for each filled order")


class SizingConfig(Strict):
    """How large a position is where the strategy leaves it open."""

    by: Literal["fraction", "units"] = Field(
        "fraction", description="fraction: of the equity, times the leverage"
    )
    amount: float = Field(1.0, gt=0, le=1e12, description="The fraction, or the units")
    whole_units: bool = Field(True, description="Fractions are rounded down to whole units")
    fixed_commission_for_each_unit: bool = Field(
        False, description="Set the fixed commission aside for each unit, as backtesting.py does"
    )


class BacktestConfig(RecipeConfig):
    """A strategy, the prices it meets, and the broker's terms."""

    kind: ClassVar[str] = "backtest"
    FORKABLE: ClassVar[frozenset[str]] = OperationConfig.FORKABLE | {"dataset", "finish", "until"}

    dataset: DatasetId = Field(description="The price series: an uploaded table of bars")
    columns: PriceColumns = PriceColumns()
    symbol: str = Field("asset", min_length=1, max_length=40, description="What is traded")
    symbols: list[str] = Field(
        default_factory=list,
        max_length=1000,
        description="Of a table of several symbols: those to trade; all, if none is named",
    )
    timezone: str = Field("UTC", description="In which days begin")
    start: date | None = Field(None, strict=False, description="The first day that is traded")
    until: date | None = Field(
        None, strict=False, description="The first day that is not traded any more"
    )
    resample: Interval | None = Field(
        None, description="Coarser bars, made from those of the dataset"
    )
    cash: float = Field(10_000.0, gt=0, le=1e15, description="What the account begins with")
    commission: CommissionConfig = CommissionConfig()
    spread: float = Field(
        0.0, ge=0, lt=0.5, description="Between bid and ask, relative; a fill pays half of it"
    )
    slippage: float = Field(
        0.0, ge=0, lt=0.5, description="Relative, against every market and stop order"
    )
    margin: float = Field(
        1.0, gt=0, le=1, description="Share of a position's value to own; 1/leverage"
    )
    maintenance_margin: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="All is liquidated where equity is at most this share of positions",
    )
    fill: Literal["next_open", "same_close"] = Field(
        "next_open", description="Where market orders decided at a bar's close are filled"
    )
    sizing: SizingConfig = SizingConfig()
    finish: Literal["close", "open", "hold"] = Field(
        "close",
        description="What becomes of open trades in the report: closed at the last close, as an "
        "order given one bar before the end, or held at market value",
    )
    execution: Literal["auto", "vector", "event"] = Field(
        "auto", description="auto: vector where the strategy can"
    )
    chunk_bars: int | None = Field(
        None,
        ge=1,
        le=10_000_000,
        description="Bars between two safe points; by default 1/200 of all",
    )
    monitor: Literal["equity", "drawdown"] = Field(
        "equity", description="The metric by which checkpoints are compared"
    )
    mode: Literal["min", "max"] = Field("max", description="Whether a better metric is lower")
    checkpoint: BacktestCheckpointConfig = BacktestCheckpointConfig()

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        config = super().parse(raw)
        errors = {}
        if config.sizing.by == "fraction" and config.sizing.amount > 1:
            errors["sizing.amount"] = (
                f"got {config.sizing.amount:g}; a fraction is at most 1 (for more, lower margin)"
            )
        if config.maintenance_margin > config.margin:
            errors["maintenance_margin"] = (
                f"got {config.maintenance_margin:g}; at most the margin, {config.margin:g}"
            )
        if config.start and config.until and config.until <= config.start:
            errors["until"] = f"got {config.until}; must be after start, {config.start}"
        if not _is_timezone(config.timezone):
            errors["timezone"] = f"got {config.timezone!r}; allowed: names such as Europe/Berlin"
        if len(set(config.symbols)) < len(config.symbols):
            errors["symbols"] = f"got {config.symbols}; each at most once"
        if errors:
            raise ConfigError(errors)
        return config

    def check_columns(
        self, columns: Mapping[str, Sequence[Mapping[str, Any]]]
    ) -> Mapping[str, str]:
        kinds = {column["name"]: column["type"] for column in columns.get(self.dataset, ())}
        _, problems = find_columns(kinds, self.columns) if kinds else ({}, {})
        return {**super().check_columns(columns), **problems}


def _is_timezone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True
