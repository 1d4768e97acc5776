"""All that a broker knows, in plain arrays: what is frozen at a bar and continues from there.

Rows of `orders` stand in the order in which they were placed, rows of `trades` in the order in
which they were opened; how many of them count stands in `account`. Prices that are not set are NaN.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from trainops.market.bars import Floats

Rows = NDArray[Any]

NO_TRADE = -1
FOR_EVER = 2**62  # the last bar of an order that is good till cancelled

# Why a trade was closed
BY_ORDER, BY_STOP_LOSS, BY_TAKE_PROFIT, BY_LIQUIDATION, AT_END = range(5)
REASONS = ("order", "stop_loss", "take_profit", "liquidation", "end")
# Where in its bar a trade was opened
AT_OPEN, BY_LIMIT, BY_STOP = range(3)

SETTINGS = np.dtype(
    [
        ("commission_relative", "f8"),
        ("commission_fixed", "f8"),
        ("commission_minimum", "f8"),
        ("half_spread", "f8"),
        ("slippage", "f8"),
        ("leverage", "f8"),
        ("maintenance", "f8"),
        ("sizing", "f8"),
        ("sizing_is_units", "i8"),
        ("whole_units", "i8"),
        ("fixed_for_each_unit", "i8"),
        ("same_close", "i8"),
    ]
)
ACCOUNT = np.dtype(
    [
        ("cash", "f8"),
        ("commission", "f8"),  # paid so far
        ("next_id", "i8"),
        ("num_orders", "i8"),
        ("num_trades", "i8"),
        ("num_closed", "i8"),  # waiting to be collected
        ("refused", "i8"),  # orders that the margin did not cover
        ("liquidations", "i8"),
    ]
)
ORDER = np.dtype(
    [
        ("id", "i8"),
        ("symbol", "i8"),
        ("amount", "f8"),  # signed: units, or a fraction of the equity
        ("is_fraction", "i8"),
        ("limit", "f8"),
        ("stop", "f8"),
        ("stop_loss", "f8"),
        ("take_profit", "f8"),
        ("trade", "i8"),  # that this order closes
        ("placed_bar", "i8"),
        ("last_bar", "i8"),  # on which it may still be filled
    ]
)
TRADE = np.dtype(
    [
        ("id", "i8"),
        ("symbol", "i8"),
        ("units", "f8"),
        ("entry_bar", "i8"),
        ("entry_price", "f8"),
        ("entry_commission", "f8"),
        ("stop_loss", "f8"),
        ("take_profit", "f8"),
        ("opened", "i8"),
    ]
)
CLOSED = np.dtype(
    [
        ("symbol", "i8"),
        ("units", "f8"),
        ("entry_bar", "i8"),
        ("exit_bar", "i8"),
        ("entry_price", "f8"),
        ("exit_price", "f8"),
        ("stop_loss", "f8"),
        ("take_profit", "f8"),
        ("commission", "f8"),
        ("profit", "f8"),  # after commission
        ("reason", "i8"),
    ]
)


class Book(NamedTuple):
    """The arrays.

    `marks`: prices by which orders are sized and margin is checked. They are no state: all of them
    are set to the open or the close of the bar before anything is filled there, and a fill inside
    a bar moves that of its symbol (ADR 28).
    """

    settings: Rows
    account: Rows
    orders: Rows
    trades: Rows
    closed: Rows
    marks: Floats


class VectorOrders(NamedTuple):
    """What a vector strategy wants, decided at the close of each bar; arrays of (bars, symbols).

    `target`: NaN to leave all as it is, else the direction and share of the position to switch to,
    0 for none. The prices belong to the order that enters; an empty array stands for none.
    """

    target: Floats
    limit: Floats
    stop: Floats
    stop_loss: Floats
    take_profit: Floats


def rows(dtype: DTypeLike, count: int) -> Rows:
    return np.zeros(count, dtype=dtype)
