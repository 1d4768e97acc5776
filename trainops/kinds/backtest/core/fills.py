"""What a fill does to the account: units, cash, commission, margin."""

import math

import numpy as np

from trainops.kinds.backtest.core.book import Book
from trainops.market.compiled import compiled

# What is left of an order or a trade counts as nothing from this share of its units down: sums of
# fractional units end beside zero (0.1 + 0.2 - 0.3 is 5.6e-17).
DUST = 1e-9


@compiled
def commission(book: Book, units: float, price: float) -> float:
    """Return what an order costs that is filled with N units: fixed + relative, at least
    the minimum; 0 for none.
    """
    if units == 0:
        return 0.0
    settings = book.settings[0]
    paid = settings.commission_fixed + abs(units) * price * settings.commission_relative
    return max(settings.commission_minimum, paid)


@compiled
def added_commission(book: Book, done: float, units: float, price: float) -> float:
    """Return what further units of an order cost, after `done` of it at the same price."""
    return commission(book, abs(done) + abs(units), price) - commission(book, done, price)


@compiled
def without_dust(units: float, held: float, ordered: float) -> float:
    """Return how many units to close: all that are held where only dust would be left of them.

    All are positive: the units to close, those of the trade, those of the order.
    """
    return held if held - units <= DUST * max(held, ordered) else units


@compiled
def market_price(book: Book, price: float, units: float) -> float:
    """Return what a market order gets: half the spread and the slippage are against it."""
    settings = book.settings[0]
    return price * (1 + math.copysign(settings.half_spread + settings.slippage, units))


@compiled
def equity_of(book: Book) -> float:
    """Return cash and positions at the newest known prices."""
    total = book.account[0].cash
    for i in range(book.account[0].num_trades):
        total += book.trades[i].units * book.marks[book.trades[i].symbol]
    return total


@compiled
def exposure_of(book: Book) -> float:
    """Return the value of all positions, long and short alike."""
    total = 0.0
    for i in range(book.account[0].num_trades):
        total += abs(book.trades[i].units) * book.marks[book.trades[i].symbol]
    return total


@compiled
def buying_power(book: Book) -> float:
    """Return the value that may still be bought or sold short: free equity times leverage."""
    leverage = book.settings[0].leverage
    return max(0.0, equity_of(book) - exposure_of(book) / leverage) * leverage


@compiled
def affordable_units(book: Book, budget: float, price: float, done: float) -> float:
    """Return how many units a budget pays for, commission included.

    `done`: units of the same order that are filled already; their commission is paid.
    """
    settings = book.settings[0]
    unit_cost = price + price * settings.commission_relative
    if settings.fixed_for_each_unit:
        units = budget // (unit_cost + settings.commission_fixed)
    else:
        budget += commission(book, done, price)
        before = settings.commission_fixed + abs(done) * price * settings.commission_relative
        units = min((budget - before) / unit_cost, (budget - settings.commission_minimum) / price)
    if settings.whole_units:
        units = np.floor(units)
    return max(0.0, units)


@compiled
def close_units(
    book: Book, row: int, units: float, price: float, bar: int, reason: int, done: float = 0.0
) -> bool:
    """Close `units` (a positive number) of a trade; return whether it is gone.

    `done`: units of the same order that are filled already.
    """
    account, trade = book.account[0], book.trades[row]
    is_whole = units >= abs(trade.units)
    part = trade.units if is_whole else math.copysign(units, trade.units)
    share = trade.entry_commission
    if not is_whole:
        share = trade.entry_commission * (part / trade.units)
    paid = added_commission(book, done, part, price)
    account.cash += part * price - paid
    account.commission += paid
    closed = book.closed[account.num_closed]
    closed.symbol, closed.units = trade.symbol, part
    closed.entry_bar, closed.exit_bar = trade.entry_bar, bar
    closed.entry_price, closed.exit_price = trade.entry_price, price
    closed.stop_loss, closed.take_profit = trade.stop_loss, trade.take_profit
    closed.commission = share + paid
    closed.profit = part * (price - trade.entry_price) - (share + paid)
    closed.reason = reason
    account.num_closed += 1
    if is_whole:
        account.num_trades -= 1
        for i in range(row, account.num_trades):
            book.trades[i] = book.trades[i + 1]
        return True
    trade.units -= part
    trade.entry_commission -= share
    return False


@compiled
def open_trade(
    book: Book, row: int, units: float, price: float, bar: int, opened: int, done: float
) -> None:
    """Open a trade with what the order in this row asks for, after `done` units of it."""
    account, order = book.account[0], book.orders[row]
    paid = added_commission(book, done, units, price)
    account.cash -= units * price + paid
    account.commission += paid
    trade = book.trades[account.num_trades]
    trade.id, trade.symbol, trade.units = order.id, order.symbol, units
    trade.entry_bar, trade.entry_price, trade.entry_commission = bar, price, paid
    trade.stop_loss, trade.take_profit = order.stop_loss, order.take_profit
    trade.opened = opened
    account.num_trades += 1
