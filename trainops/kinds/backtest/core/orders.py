"""Orders: placed, cancelled, and turned into fills at a given price."""

import math

import numpy as np

from trainops.kinds.backtest.core.book import BY_ORDER, FOR_EVER, NO_TRADE, Book
from trainops.kinds.backtest.core.fills import (
    DUST,
    added_commission,
    affordable_units,
    buying_power,
    close_units,
    equity_of,
    open_trade,
    without_dust,
)
from trainops.market.compiled import compiled, inlined


@compiled
def place(
    book: Book,
    symbol: int,
    amount: float,
    is_fraction: bool,
    limit: float,
    stop: float,
    stop_loss: float,
    take_profit: float,
    trade: int,
    bar: int,
    last_bar: int,
) -> int:
    """Append an order to the book and return its id."""
    account = book.account[0]
    order = book.orders[account.num_orders]
    order.id, order.symbol = account.next_id, symbol
    order.amount, order.is_fraction = amount, is_fraction
    order.limit, order.stop = limit, stop
    order.stop_loss, order.take_profit = stop_loss, take_profit
    order.trade, order.placed_bar, order.last_bar = trade, bar, last_bar
    account.next_id += 1
    account.num_orders += 1
    return int(order.id)


@compiled
def remove_order(book: Book, row: int) -> None:
    account = book.account[0]
    account.num_orders -= 1
    for i in range(row, account.num_orders):
        book.orders[i] = book.orders[i + 1]


@compiled
def cancel_entries(book: Book, symbol: int) -> None:
    """Cancel all orders of a symbol but those that close a trade."""
    row = 0
    while row < book.account[0].num_orders:
        order = book.orders[row]
        if order.symbol == symbol and order.trade == NO_TRADE:
            remove_order(book, row)
        else:
            row += 1


@compiled
def close_all(book: Book, symbol: int, bar: int) -> None:
    """Place market orders that close every trade of a symbol."""
    for i in range(book.account[0].num_trades):
        trade = book.trades[i]
        if trade.symbol == symbol:
            place(
                book, symbol, -trade.units, False, math.nan, math.nan, math.nan, math.nan,
                trade.id, bar, FOR_EVER,
            )  # fmt: skip


@compiled
def switch(
    book: Book,
    symbol: int,
    target: float,
    limit: float,
    stop: float,
    stop_loss: float,
    take_profit: float,
    bar: int,
) -> None:
    """Cancel what is open, close what is held, and enter what `target` says; 0: nothing."""
    cancel_entries(book, symbol)
    close_all(book, symbol, bar)
    if target != 0:
        settings = book.settings[0]
        place(
            book, symbol, target * settings.sizing, not settings.sizing_is_units, limit, stop,
            stop_loss, take_profit, NO_TRADE, bar, FOR_EVER,
        )  # fmt: skip


@compiled
def row_of_trade(book: Book, trade: int) -> int:
    for i in range(book.account[0].num_trades):
        if book.trades[i].id == trade:
            return i
    return -1


@compiled
def fill(book: Book, row: int, price: float, bar: int, opened: int) -> None:
    """Fill the order in this row at this price, or refuse it. It is still in the book after."""
    order = book.orders[row]
    book.marks[order.symbol] = price
    if order.trade != NO_TRADE:
        closes = row_of_trade(book, order.trade)
        if closes >= 0:  # else something else closed it first
            units = without_dust(abs(order.amount), abs(book.trades[closes].units), 0.0)
            close_units(book, closes, units, price, bar, BY_ORDER)
        return
    wanted = _wanted_units(book, row, price)
    units = _net(book, order.symbol, wanted, price, bar)
    if units == 0 and wanted != 0:
        return
    done = wanted - units
    units = _covered_units(book, row, units, price, done)
    if abs(units) <= DUST * abs(wanted):
        book.account[0].refused += 1
        return
    open_trade(book, row, units, price, bar, opened, done)


@compiled
def _wanted_units(book: Book, row: int, price: float) -> float:
    order = book.orders[row]
    if not order.is_fraction:
        return order.amount
    budget = max(0.0, equity_of(book)) * book.settings[0].leverage * abs(order.amount)
    return math.copysign(affordable_units(book, budget, price, 0.0), order.amount)


@compiled
def _covered_units(book: Book, row: int, units: float, price: float, done: float) -> float:
    """Return what the margin covers: for an order in units all or nothing, else what it can."""
    power = buying_power(book)
    if book.orders[row].is_fraction:
        return math.copysign(min(abs(units), affordable_units(book, power, price, done)), units)
    cost = abs(units) * price + added_commission(book, done, units, price)
    return units if cost <= power else 0.0


@compiled
def _net(book: Book, symbol: int, wanted: float, price: float, bar: int) -> float:
    """Close trades of the other direction, the oldest first; return the units that are left.

    It is one order, whose commission counts all of its units: each part bears what it adds.
    """
    row, units = 0, wanted
    while row < book.account[0].num_trades and units != 0:
        trade = book.trades[row]
        if trade.symbol != symbol or trade.units * units > 0:
            row += 1
            continue
        held, done = abs(trade.units), wanted - units
        part = without_dust(abs(units), held, abs(wanted))
        left = abs(units) - part
        units = math.copysign(left, units) if left > DUST * abs(wanted) else 0.0
        if not close_units(book, row, part, price, bar, BY_ORDER, done):
            row += 1
    return units


@compiled
def expire(book: Book, bar: int) -> None:
    """Let go of the orders that were good for no longer than this bar."""
    row = 0
    while row < book.account[0].num_orders:
        if book.orders[row].last_bar <= bar:
            remove_order(book, row)
        else:
            row += 1


@inlined
def is_set(price: float) -> bool:
    return not np.isnan(price)
