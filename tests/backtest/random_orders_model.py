import random
from functools import partial

import numpy as np

from tests.backtest.rule import give_orders, random_target
from trainops.kinds.backtest.strategy import EventStrategy, Signals, Strategy


class RandomOrders(EventStrategy):
    def __init__(self, parameters):
        self.parameters = parameters
        self.placed = []

    def on_bar(self, desk):
        parameters = self.parameters
        for symbol in range(len(desk.symbols)):
            of = desk.of(symbol)
            if parameters.looks:
                look(of)
            chance = parameters.chance
            if parameters.dice:
                chance += random.randrange(3)  # noqa: S311
            if parameters.rule == "targets":
                target, terms = random_target(of.bar, of.close, symbol, chance, parameters.activity)
                if target is not None:
                    of.switch(target, **terms)
            else:
                give_orders(of, chance, parameters.activity, parameters.units, self.placed)
            if parameters.looks:
                look(of)


def look(desk):
    _ = (desk.equity, desk.cash, desk.position, desk.trades, desk.orders, desk.volume, desk.time)


def vector(parameters, prices):
    shape = prices.bars.close.shape
    names = ("target", "limit", "stop", "stop_loss", "take_profit")
    signals = {name: np.full(shape, np.nan) for name in names}
    for bar, closes in enumerate(prices.bars.close.tolist()):
        for symbol, close in enumerate(closes):
            target, terms = random_target(
                bar, close, symbol, parameters.chance, parameters.activity
            )
            if target is not None:
                for name, value in {"target": target, **terms}.items():
                    signals[name][bar, symbol] = value
    return Signals(**signals)


def build(parameters, context):
    has_both = parameters.rule == "targets" and not parameters.dice
    return Strategy(
        vector=partial(vector, parameters) if has_both else None,
        event=partial(RandomOrders, parameters),
        trades_several=True,
    )
