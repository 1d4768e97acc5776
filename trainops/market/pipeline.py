"""What a model of prices looks at, as people configure it. Imports no torch."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from trainops.runtime.config import Strict

Interval = Literal["1min", "5min", "15min", "30min", "1h", "4h", "1d", "1w"]
Periods = Annotated[list[Annotated[int, Field(ge=1, le=10_000)]], Field(max_length=20)]  # in bars


class FeatureParameters(Strict):
    """The features of a bar. Each is made of this bar and those before it, never of later ones."""

    returns: Periods = Field(
        default_factory=lambda: [1, 5, 20], description="Relative change of the close over N bars."
    )
    averages: Periods = Field(
        default_factory=lambda: [10, 50],
        description="Distance of the close from its simple moving average.",
    )
    rsi: Periods = Field(default_factory=lambda: [14], description="Relative strength index (RSI).")
    bollinger: Periods = Field(
        default_factory=lambda: [20], description="Position between the Bollinger bands."
    )
    donchian: Periods = Field(
        default_factory=lambda: [20], description="Position in the Donchian channel."
    )
    atr: Periods = Field(
        default_factory=lambda: [14], description="Average true range (ATR), relative to the close."
    )
    macd: bool = Field(True, description="MACD line and histogram, relative to the close.")
    fuzzy: Literal["off", "beside", "instead"] = Field(
        "off",
        description="Fuzzy memberships (low, middle, high; they sum to 1) of each feature, in "
        "addition to its value or instead of it.",
    )

    @field_validator("bollinger", "donchian", "rsi")
    @classmethod
    def _at_least_two(cls, periods: list[int]) -> list[int]:
        if any(period < 2 for period in periods):
            raise ValueError("each period must be at least 2")
        return periods

    @property
    def is_empty(self) -> bool:
        periods = (
            self.returns, self.averages, self.rsi, self.bollinger, self.donchian, self.atr,
        )  # fmt: skip
        return not self.macd and not any(periods)
