"""Back into the Bollinger bands: in beyond one of them, out at the middle."""

from functools import partial

import numpy as np

from trainops.kinds.backtest.desk import Desk
from trainops.kinds.backtest.recipes.bollinger import BollingerParameters
from trainops.kinds.backtest.recipes.rules import StandingStrategy, standing_signals
from trainops.kinds.backtest.strategy import Signals, Strategy, StrategyContext
from trainops.market.bars import Floats
from trainops.market.compiled import compiled
from trainops.market.indicators.ranges import Bollinger, bollinger
from trainops.market.prices import Prices


class BollingerReversion(StandingStrategy):
    def __init__(self, parameters: BollingerParameters) -> None:
        super().__init__(parameters)
        self.bands = Bollinger(parameters.period, parameters.width)

    def wanted(self, desk: Desk) -> float:
        return after(self.direction, desk.close, *self.bands.update(desk.close))


@compiled
def after(direction: float, close: float, upper: float, middle: float, lower: float) -> float:
    """Return the direction after a close; comparisons with a NaN are false and change nothing."""
    if close < lower:
        return 1.0
    if close > upper:
        return -1.0
    is_back = (direction > 0 and close >= middle) or (direction < 0 and close <= middle)
    return 0.0 if is_back else direction


@compiled
def standing(closes: Floats, upper: Floats, middle: Floats, lower: Floats) -> Floats:
    directions, direction = np.empty(len(closes)), 0.0
    for i in range(len(closes)):
        direction = after(direction, closes[i], upper[i], middle[i], lower[i])
        directions[i] = direction
    return directions


def vector(parameters: BollingerParameters, prices: Prices) -> Signals:
    bands = bollinger(prices.closes(), parameters.period, parameters.width)
    return standing_signals(standing(prices.closes(), *bands), prices, parameters)


def build(parameters: BollingerParameters, context: StrategyContext) -> Strategy:
    event = partial(BollingerReversion, parameters)
    return Strategy(vector=partial(vector, parameters), event=event)
