"""Crossings of the MACD line and its signal."""

from functools import partial

from trainops.kinds.backtest.desk import Desk
from trainops.kinds.backtest.recipes.macd import MacdParameters
from trainops.kinds.backtest.recipes.rules import CrossingStrategy, crossing_signals
from trainops.kinds.backtest.strategy import Signals, Strategy, StrategyContext
from trainops.market.indicators.momentum import Macd, macd
from trainops.market.prices import Prices


class MacdCrossing(CrossingStrategy):
    def __init__(self, parameters: MacdParameters) -> None:
        super().__init__(parameters)
        self.macd = Macd(parameters.fast, parameters.slow, parameters.signal)

    def on_bar(self, desk: Desk) -> None:
        line, signal = self.macd.update(desk.close)
        above = line - signal
        if above * self.before < 0:  # of different signs; never true of a NaN
            self.turn(desk, above)
        self.before = above


def vector(parameters: MacdParameters, prices: Prices) -> Signals:
    line, signal = macd(prices.closes(), parameters.fast, parameters.slow, parameters.signal)
    return crossing_signals(line, signal, prices, parameters)


def build(parameters: MacdParameters, context: StrategyContext) -> Strategy:
    return Strategy(vector=partial(vector, parameters), event=partial(MacdCrossing, parameters))
