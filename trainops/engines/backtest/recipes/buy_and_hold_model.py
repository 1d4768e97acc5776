"""Buying once."""

from functools import partial

import numpy as np

from trainops.engines.backtest.desk import Desk
from trainops.engines.backtest.recipes.buy_and_hold import BuyAndHoldParameters
from trainops.engines.backtest.recipes.rules import StandingStrategy, standing_signals
from trainops.engines.backtest.strategy import BuildContext, Signals, Strategy
from trainops.engines.market.prices import Prices


class BuyAndHold(StandingStrategy):
    def wanted(self, desk: Desk) -> float:
        return 1.0


def vector(parameters: BuyAndHoldParameters, prices: Prices) -> Signals:
    return standing_signals(np.ones(len(prices)), prices, parameters)


def build(parameters: BuyAndHoldParameters, context: BuildContext) -> Strategy:
    return Strategy(vector=partial(vector, parameters), event=partial(BuyAndHold, parameters))
