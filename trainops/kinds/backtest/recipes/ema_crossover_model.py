"""Crossings of two exponential moving averages."""

from functools import partial

from trainops.kinds.backtest.desk import Desk
from trainops.kinds.backtest.recipes.ema_crossover import EmaCrossoverParameters
from trainops.kinds.backtest.recipes.rules import CrossingStrategy, crossing_signals
from trainops.kinds.backtest.strategy import Signals, Strategy, StrategyContext
from trainops.market.indicators.averages import Ema, ema
from trainops.market.prices import Prices


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


def build(parameters: EmaCrossoverParameters, context: StrategyContext) -> Strategy:
    return Strategy(vector=partial(vector, parameters), event=partial(EmaCrossover, parameters))
