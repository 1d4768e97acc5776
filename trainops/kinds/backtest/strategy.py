"""The two ways to write a strategy, and what a recipe's `build` returns."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from trainops.kinds.backtest.core.book import VectorOrders
from trainops.kinds.backtest.desk import Desk
from trainops.market.bars import Floats
from trainops.market.prices import Prices


@dataclass(frozen=True, slots=True)
class StrategyContext:
    """What a recipe may use beside its parameters."""

    seed: int
    inputs: Mapping[str, Path]  # each dataset's Parquet file, each model's checkpoint


@dataclass(frozen=True, slots=True)
class Signals:
    """A vector strategy's decisions, one for each bar, made at its close.

    `target` is NaN where nothing is to be done; else the direction and share of a position to
    switch to (1 long, -1 short, 0 none): open orders are cancelled, open trades are closed, and an
    order enters the new position. The other arrays belong to that order: NaN or nothing for none.
    """

    target: Floats
    limit: Floats | None = None
    stop: Floats | None = None
    stop_loss: Floats | None = None
    take_profit: Floats | None = None

    def to_plan(self) -> VectorOrders:
        """Return what the core reads: arrays of (bars, symbols)."""
        given = (self.target, self.limit, self.stop, self.stop_loss, self.take_profit)
        shape = self.target.shape
        for each in given:
            if each is not None and each.shape != shape:
                raise ValueError(f"signals of {each.shape} beside targets of {shape}")
        return VectorOrders(*map(_as_columns, given))


class EventStrategy(ABC):
    """Decides bar by bar.

    All that it remembers are attributes: streaming indicators, numbers, texts, lists and dicts of
    them. The engine saves them with every checkpoint; what else is kept is refused at the start.
    """

    @abstractmethod
    def on_bar(self, desk: Desk) -> None:
        """Look at the bar that just closed, and give orders."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """One rule, in one form or in both. Both must give the same trades.

    `identity`: what else it is made of, such as a model's digest. A state continues with the same.
    """

    vector: Callable[[Prices], Signals] | None = None
    event: Callable[[], EventStrategy] | None = None
    trades_several: bool = False  # symbols at once; signals are then of (bars, symbols)
    identity: Mapping[str, str] = field(default_factory=dict)


def _as_columns(values: Floats | None) -> Floats:
    if values is None:
        return np.empty((0, 0))
    columns = values.reshape(len(values), -1)
    return np.require(columns, np.float64, ["C", "W"])
