"""What a random strategy orders: by a desk's public methods alone, so any broker can be given it.

Imports nothing of the engine.
"""

import random

SIZES = (0.1, 0.2, 0.3, 0.7, 1.0, 2.0, 3.0, 5.0)


def give_orders(desk, chance, activity, units, placed):
    """Give this bar's orders for the desk's symbol; `placed` collects the ids of orders."""
    rng = random.Random(f"{chance} {desk.bar} {desk.symbol}")  # noqa: S311
    while rng.random() < activity:
        act(desk, rng, units, placed)


def act(desk, rng, units, placed):  # noqa: C901, PLR0912 - a branch for each kind of order
    close = desk.close
    size = rng.choice(SIZES) * units
    what = rng.randrange(14)
    direction = rng.choice((1, -1))
    terms = protection(rng, close, direction)
    if rng.random() < 0.2:
        terms["for_bars"] = rng.randrange(1, 4)
    near, far = close * rng.uniform(0.0, 0.02), close * rng.uniform(0.0, 0.02)
    if what == 0:
        placed.append(desk.order(direction, size, **terms))
    elif what == 1:
        placed.append(desk.order(direction, fraction=rng.choice((0.2, 0.5, 1.0)), **terms))
    elif what == 2:
        placed.append(desk.order(direction, **terms))
    elif what == 3:
        placed.append(desk.order(direction, size, limit=close - direction * near, **terms))
    elif what == 4:
        placed.append(desk.order(direction, size, stop=close + direction * near, **terms))
    elif what == 5:
        stop = close + direction * near
        limit = stop + rng.choice((1, -1)) * far
        placed.append(desk.order(direction, fraction=0.4, stop=stop, limit=limit, **terms))
    elif what == 6:
        desk.close_position(rng.choice((0.3, 0.5, 1.0)))
    elif what == 7:
        terms.pop("for_bars", None)
        desk.switch(rng.choice((1.0, -1.0, 0.5, 0.0)), **terms)
    elif what == 8 and placed:
        desk.cancel(rng.choice(placed[-5:]))
    elif what == 9:
        desk.cancel()
    elif what == 10:
        for trade in desk.trades[:1]:
            desk.protect(trade["id"], stop_loss=close * rng.uniform(0.9, 1.1))
    elif what == 11:
        for trade in desk.trades[-1:]:
            desk.protect(trade["id"], stop_loss=float("nan"), take_profit=close * 1.01)
    elif what == 12 and desk.equity > desk.cash:
        placed.append(desk.sell(size, **terms))
    elif what == 13 and desk.position:
        held = desk.position  # close all of it by an order of the other direction, or turn it
        placed.append(desk.order(-1 if held > 0 else 1, abs(held) * rng.choice((1.0, 1.0, 2.0))))


def random_target(bar, close, symbol, chance, activity):
    """Return a target for `switch` and its terms; None: nothing is to be done."""
    rng = random.Random(f"{chance} {bar} {symbol}")  # noqa: S311
    if rng.random() >= activity:
        return None, {}
    target = rng.choice((1.0, -1.0, 0.5, -0.3, 0.0))
    direction = 1 if target > 0 else -1
    terms = protection(rng, close, direction)
    entry = rng.randrange(4)
    if entry == 1:
        terms["limit"] = close * (1 - direction * 0.005)
    elif entry == 2:
        terms["stop"] = close * (1 + direction * 0.005)
    return target, terms


def protection(rng, close, direction):
    terms = {}
    if rng.random() < 0.4:
        terms["stop_loss"] = close * (1 - direction * rng.uniform(0.0, 0.05))
    if rng.random() < 0.4:
        terms["take_profit"] = close * (1 + direction * rng.uniform(0.0, 0.05))
    return terms
