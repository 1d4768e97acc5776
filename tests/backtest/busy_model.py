import random
from functools import partial

import numpy as np

from trainops.kinds.backtest.strategy import EventStrategy, Strategy
from trainops.market.indicators.averages import Sma
from trainops.market.indicators.ranges import Atr


class Busy(EventStrategy):
    def __init__(self, parameters):
        self.parameters = parameters
        self.average, self.range = Sma(3), Atr(3)
        self.closes = np.zeros(4)
        self.moods = {"calm": 0, "wild": [0, 0.5]}
        self.last_order = None
        if parameters.remember_a_function:
            self.function = print

    def on_bar(self, desk):
        average = self.average.update(desk.close)
        wide = self.range.update(desk.high, desk.low, desk.close)
        self.closes[desk.bar % 4] = desk.close
        self.moods["wild"][0] += desk.close > average
        if wide != wide:  # not yet a number
            return
        die = random.randrange(10) if self.parameters.dice else desk.bar * 7 % 10  # noqa: S311
        size = 1.0 + self.moods["wild"][0] % 3 + (self.last_order or 0) % 2
        noise = np.random.random() if self.parameters.dice else 0.5  # noqa: NPY002
        away = wide * (0.2 + 0.5 * noise) + 0.01 * abs(desk.close - self.closes.mean())
        self.act(desk, die, size, away)

    def act(self, desk, die, size, away):  # noqa: C901 - a branch for each kind of order
        close = desk.close
        if die == 0:
            self.last_order = desk.buy(
                size, stop_loss=close - 3 * away, take_profit=close + 3 * away
            )
        elif die == 1:
            self.last_order = desk.sell(fraction=0.3, stop_loss=close + 2 * away)
        elif die == 2:
            desk.buy(size, limit=close - away, stop_loss=close - 2 * away)
        elif die == 3:
            desk.sell(size, stop=close - away, take_profit=close - 2 * away)
        elif die == 4:
            desk.buy(size, stop=close + away, limit=close + 2 * away)
        elif die == 5:
            desk.buy(2 * size, limit=close - 3 * away, for_bars=2)
        elif die == 6 and desk.position:
            desk.close_position(0.5)
        elif die == 7:
            desk.cancel(self.last_order)
            for trade in desk.trades[:1]:
                desk.protect(trade["id"], stop_loss=desk.low - away, take_profit=float("nan"))
        elif die == 8 and desk.equity > desk.cash:
            desk.switch(0.0)


def build(parameters, context):
    return Strategy(event=partial(Busy, parameters))
