"""Rotation into what rose most: Jegadeesh & Titman, Journal of Finance 48 (1993), long only.

A symbol that stays among the chosen is left alone; shares drift until it is dropped.
"""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainops.kinds.backtest.desk import Desk
from trainops.kinds.backtest.recipes.momentum_rotation import MomentumRotationParameters
from trainops.kinds.backtest.strategy import EventStrategy, Signals, Strategy, StrategyContext
from trainops.market.bars import Floats
from trainops.market.prices import Prices

Flags = NDArray[np.bool_]


class MomentumRotation(EventStrategy):
    def __init__(self, parameters: MomentumRotationParameters) -> None:
        self.parameters = parameters
        self.closes: list[list[float]] = []  # of the last `lookback` bars, the oldest first
        self.held: list[bool] = []

    def on_bar(self, desk: Desk) -> None:
        parameters = self.parameters
        self.closes.append(desk.closes.tolist())
        if desk.bar < parameters.lookback:
            return
        before = np.array(self.closes.pop(0))
        if (desk.bar - parameters.lookback) % parameters.every == 0:
            held = np.array(self.held or [False] * len(desk.symbols))
            chosen = rising_most(desk.closes, before, parameters)
            for symbol in np.flatnonzero(chosen != held).tolist():
                desk.of(symbol).switch(1 / parameters.top if chosen[symbol] else 0.0)
            self.held = chosen.tolist()


def rising_most(now: Floats, before: Floats, parameters: MomentumRotationParameters) -> Flags:
    """Return which symbols to hold; of those that rose the same, the first ones."""
    rise = now / before
    best = np.argsort(-rise, kind="stable")[: parameters.top]
    chosen = np.zeros(len(rise), dtype=np.bool_)
    chosen[best] = True
    return chosen & (rise > 1) if parameters.only_rising else chosen


def vector(parameters: MomentumRotationParameters, prices: Prices) -> Signals:
    closes: Any = prices.bars.close
    target = np.full(closes.shape, np.nan)
    held = np.zeros(closes.shape[1], dtype=np.bool_)
    for bar in range(parameters.lookback, len(closes), parameters.every):
        chosen = rising_most(closes[bar], closes[bar - parameters.lookback], parameters)
        share = np.where(chosen, 1 / parameters.top, 0.0)
        target[bar, chosen != held] = share[chosen != held]
        held = chosen
    return Signals(target=target)


def build(parameters: MomentumRotationParameters, context: StrategyContext) -> Strategy:
    event = partial(MomentumRotation, parameters)
    return Strategy(vector=partial(vector, parameters), event=event, trades_several=True)
