"""Back from extremes of the relative strength index.

Below `oversold` long, above `overbought` short; a long position is given up above the middle, a
short one below it.
"""

from functools import partial

import numpy as np

from trainops.kinds.backtest.desk import Desk
from trainops.kinds.backtest.recipes.rsi_reversion import RsiReversionParameters
from trainops.kinds.backtest.recipes.rules import StandingStrategy, standing_signals
from trainops.kinds.backtest.strategy import Signals, Strategy, StrategyContext
from trainops.market.bars import Floats
from trainops.market.compiled import compiled
from trainops.market.indicators.momentum import Rsi, rsi
from trainops.market.prices import Prices


class RsiReversion(StandingStrategy):
    def __init__(self, parameters: RsiReversionParameters) -> None:
        super().__init__(parameters)
        self.parameters = parameters
        self.rsi = Rsi(parameters.period)

    def wanted(self, desk: Desk) -> float:
        return after(self.direction, self.rsi.update(desk.close), *levels(self.parameters))


@compiled
def after(
    direction: float, index: float, oversold: float, overbought: float, middle: float
) -> float:
    """Return the direction after an index; comparisons with a NaN are false and change nothing."""
    if index < oversold:
        return 1.0
    if index > overbought:
        return -1.0
    is_back = (direction > 0 and index > middle) or (direction < 0 and index < middle)
    return 0.0 if is_back else direction


@compiled
def standing(indices: Floats, oversold: float, overbought: float, middle: float) -> Floats:
    directions, direction = np.empty(len(indices)), 0.0
    for i in range(len(indices)):
        direction = after(direction, indices[i], oversold, overbought, middle)
        directions[i] = direction
    return directions


def levels(parameters: RsiReversionParameters) -> tuple[float, float, float]:
    return parameters.oversold, parameters.overbought, parameters.middle


def vector(parameters: RsiReversionParameters, prices: Prices) -> Signals:
    indices = rsi(prices.closes(), parameters.period)
    return standing_signals(standing(indices, *levels(parameters)), prices, parameters)


def build(parameters: RsiReversionParameters, context: StrategyContext) -> Strategy:
    return Strategy(vector=partial(vector, parameters), event=partial(RsiReversion, parameters))
