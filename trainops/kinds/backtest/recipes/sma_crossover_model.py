"""Crossings of two simple moving averages."""

from functools import partial

from trainops.kinds.backtest.desk import Desk
from trainops.kinds.backtest.recipes.rules import CrossingStrategy, crossing_signals
from trainops.kinds.backtest.recipes.sma_crossover import SmaCrossoverParameters
from trainops.kinds.backtest.strategy import Signals, Strategy, StrategyContext
from trainops.market.indicators.averages import Sma, sma
from trainops.market.prices import Prices


class SmaCrossover(CrossingStrategy):
    def __init__(self, parameters: SmaCrossoverParameters) -> None:
        super().__init__(parameters)
        self.fast, self.slow = Sma(parameters.fast), Sma(parameters.slow)

    def on_bar(self, desk: Desk) -> None:
        above = self.fast.update(desk.close) - self.slow.update(desk.close)
        if above * self.before < 0:  # of different signs; never true of a NaN
            self.turn(desk, above)
        self.before = above


def vector(parameters: SmaCrossoverParameters, prices: Prices) -> Signals:
    fast = sma(prices.closes(), parameters.fast)
    slow = sma(prices.closes(), parameters.slow)
    return crossing_signals(fast, slow, prices, parameters)


def build(parameters: SmaCrossoverParameters, context: StrategyContext) -> Strategy:
    return Strategy(vector=partial(vector, parameters), event=partial(SmaCrossover, parameters))
