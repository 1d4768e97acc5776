"""Crossings of the MACD line and its signal."""

from functools import partial

from trainops.engines.backtest.desk import Desk
from trainops.engines.backtest.indicators.momentum import Macd, macd
from trainops.engines.backtest.prices import Prices
from trainops.engines.backtest.recipes.macd import MacdParameters
from trainops.engines.backtest.recipes.rules import CrossingStrategy, crossing_signals
from trainops.engines.backtest.strategy import BuildContext, Signals, Strategy


class MacdCrossing(CrossingStrategy):
    def __init__(self, parameters: MacdParameters) -> None:
        super().__init__(parameters)
        self.macd = Macd(parameters.fast, parameters.slow, parameters.signal)

    def above(self, desk: Desk) -> float:
        line, signal = self.macd.update(desk.close)
        return line - signal


def vector(parameters: MacdParameters, prices: Prices) -> Signals:
    line, signal = macd(prices.closes(), parameters.fast, parameters.slow, parameters.signal)
    return crossing_signals(line, signal, prices, parameters)


def build(parameters: MacdParameters, context: BuildContext) -> Strategy:
    return Strategy(vector=partial(vector, parameters), event=partial(MacdCrossing, parameters))
