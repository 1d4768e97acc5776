"""From directions to orders, for strategies that hold one position at a time."""

from abc import abstractmethod
from typing import Any

import numpy as np

from trainops.kinds.backtest.desk import Desk
from trainops.kinds.backtest.recipes.entries import EntryParameters
from trainops.kinds.backtest.strategy import EventStrategy, Signals
from trainops.market.bars import Floats
from trainops.market.prices import Prices


class CrossingStrategy(EventStrategy):
    """Buys where one line crosses another upwards, and turns where it crosses it downwards.

    A crossing takes two bars: below on one, above on the next. Lines that only touch do not cross.
    A subclass's `on_bar` reckons how far the first line is above the other, and says `turn` where
    that has changed its sign.
    """

    def __init__(self, parameters: EntryParameters) -> None:
        self.entries = parameters
        self.before = np.nan  # how far the first line was above the other

    def turn(self, desk: Desk, above: float) -> None:
        """Go with the line that has just crossed the other."""
        switch(desk, self.entries, 1.0 if above > 0 else -1.0)


class StandingStrategy(EventStrategy):
    """Has a direction, and gives orders when it changes."""

    def __init__(self, parameters: EntryParameters) -> None:
        self.entries = parameters
        self.direction = 0.0

    @abstractmethod
    def wanted(self, desk: Desk) -> float:
        """Return the direction after this bar; NaN to leave it as it is."""

    def on_bar(self, desk: Desk) -> None:
        wanted = self.wanted(desk)
        if wanted == wanted and wanted != self.direction:  # not NaN
            self.direction = wanted
            switch(desk, self.entries, wanted)


def switch(desk: Desk, parameters: EntryParameters, direction: float) -> None:
    target = parameters.target(direction)
    desk.switch(target, **parameters.terms(desk.close, target))


def crossing_signals(
    line: Floats, other: Floats, prices: Prices, parameters: EntryParameters
) -> Signals:
    """Return the decisions of a CrossingStrategy over a whole series."""
    above = line - other
    with np.errstate(invalid="ignore"):
        has_crossed = above[1:] * above[:-1] < 0
    directions = np.full(len(above), np.nan)
    directions[1:][has_crossed] = np.sign(above[1:][has_crossed])
    return signals(directions, prices, parameters)


def standing_signals(wanted: Floats, prices: Prices, parameters: EntryParameters) -> Signals:
    """Return the decisions of a StandingStrategy: the changes of what is wanted."""
    said = np.flatnonzero(~np.isnan(wanted))
    is_change = np.diff(wanted[said], prepend=0.0) != 0
    directions = np.full(len(wanted), np.nan)
    directions[said[is_change]] = wanted[said[is_change]]
    return signals(directions, prices, parameters)


def signals(directions: Floats, prices: Prices, parameters: EntryParameters) -> Signals:
    target = parameters.target(directions)
    terms: dict[str, Any] = parameters.terms(prices.closes(), target)
    return Signals(target=target, **terms)
