"""Buying once."""

from functools import partial

import numpy as np

from trainops.kinds.backtest.desk import Desk
from trainops.kinds.backtest.recipes.buy_and_hold import BuyAndHoldParameters
from trainops.kinds.backtest.recipes.rules import StandingStrategy, standing_signals
from trainops.kinds.backtest.strategy import Signals, Strategy, StrategyContext
from trainops.market.prices import Prices


class BuyAndHold(StandingStrategy):
    def wanted(self, desk: Desk) -> float:
        return 1.0


def vector(parameters: BuyAndHoldParameters, prices: Prices) -> Signals:
    return standing_signals(np.ones(len(prices)), prices, parameters)


def build(parameters: BuyAndHoldParameters, context: StrategyContext) -> Strategy:
    return Strategy(vector=partial(vector, parameters), event=partial(BuyAndHold, parameters))
