"""Crossings of two exponential moving averages."""

from functools import partial

from trainops.engines.backtest.desk import Desk
from trainops.engines.backtest.recipes.ema_crossover import EmaCrossoverParameters
from trainops.engines.backtest.recipes.rules import CrossingStrategy, crossing_signals
from trainops.engines.backtest.strategy import BuildContext, Signals, Strategy
from trainops.engines.market.indicators.averages import Ema, ema
from trainops.engines.market.prices import Prices


class EmaCrossover(CrossingStrategy):
    def __init__(self, parameters: EmaCrossoverParameters) -> None:
        super().__init__(parameters)
        self.fast, self.slow = Ema(parameters.fast), Ema(parameters.slow)

    def on_bar(self, desk: Desk) -> None:
        above = self.fast.update(desk.close) - self.slow.update(desk.close)
        if above * self.before < 0:  # of different signs; never true of a NaN
            self.turn(desk, above)
        self.before = above


def vector(parameters: EmaCrossoverParameters, prices: Prices) -> Signals:
    fast = ema(prices.closes(), parameters.fast)
    slow = ema(prices.closes(), parameters.slow)
    return crossing_signals(fast, slow, prices, parameters)


def build(parameters: EmaCrossoverParameters, context: BuildContext) -> Strategy:
    return Strategy(vector=partial(vector, parameters), event=partial(EmaCrossover, parameters))
