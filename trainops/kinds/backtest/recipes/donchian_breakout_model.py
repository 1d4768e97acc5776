"""Out of the Donchian channel of the bars before, as the turtles traded it."""

from functools import partial

import numpy as np

from trainops.kinds.backtest.desk import Desk
from trainops.kinds.backtest.recipes.donchian_breakout import DonchianBreakoutParameters
from trainops.kinds.backtest.recipes.rules import StandingStrategy, standing_signals
from trainops.kinds.backtest.strategy import Signals, Strategy, StrategyContext
from trainops.market.bars import Floats
from trainops.market.compiled import compiled
from trainops.market.indicators.ranges import Donchian, donchian
from trainops.market.prices import Prices


class DonchianBreakout(StandingStrategy):
    def __init__(self, parameters: DonchianBreakoutParameters) -> None:
        super().__init__(parameters)
        self.channel = Donchian(parameters.period)
        self.exit_channel = Donchian(parameters.exit_period)

    def wanted(self, desk: Desk) -> float:
        before, exit_before = self.channel.ends, self.exit_channel.ends  # without this bar
        self.channel.update(desk.high, desk.low)
        self.exit_channel.update(desk.high, desk.low)
        return after(self.direction, desk.close, *before, *exit_before)


@compiled
def after(
    direction: float,
    close: float,
    upper: float,
    lower: float,
    exit_upper: float,
    exit_lower: float,
) -> float:
    """Return the direction after a close; comparisons with a NaN are false and change nothing."""
    if close > upper:
        return 1.0
    if close < lower:
        return -1.0
    is_over = (direction > 0 and close < exit_lower) or (direction < 0 and close > exit_upper)
    return 0.0 if is_over else direction


@compiled
def standing(
    closes: Floats, upper: Floats, lower: Floats, exit_upper: Floats, exit_lower: Floats
) -> Floats:
    """Return the direction after each close; the channels' ends are those at the same bar."""
    directions, direction = np.zeros(len(closes)), 0.0
    for i in range(1, len(closes)):
        direction = after(
            direction, closes[i], upper[i - 1], lower[i - 1], exit_upper[i - 1], exit_lower[i - 1]
        )
        directions[i] = direction
    return directions


def vector(parameters: DonchianBreakoutParameters, prices: Prices) -> Signals:
    entry = donchian(prices.highs(), prices.lows(), parameters.period)
    leave = donchian(prices.highs(), prices.lows(), parameters.exit_period)
    return standing_signals(standing(prices.closes(), *entry, *leave), prices, parameters)


def build(parameters: DonchianBreakoutParameters, context: StrategyContext) -> Strategy:
    event = partial(DonchianBreakout, parameters)
    return Strategy(vector=partial(vector, parameters), event=event)
