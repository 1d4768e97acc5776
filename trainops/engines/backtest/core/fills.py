"""What a fill does to the account: units, cash, commission, margin."""

import math

import numpy as np

from trainops.engines.backtest.core.book import Book
from trainops.engines.market.compiled import compiled


@compiled
def commission(book: Book, units: float, price: float) -> float:
    """Return what one fill costs: fixed + relative, at least the minimum."""
    settings = book.settings[0]
    paid = settings.commission_fixed + abs(units) * price * settings.commission_relative
    return max(settings.commission_minimum, paid)


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
def affordable_units(book: Book, budget: float, price: float) -> float:
    """Return how many units a budget pays for, commission included."""
    settings = book.settings[0]
    unit_cost = price + price * settings.commission_relative
    if settings.fixed_for_each_unit:
        units = budget // (unit_cost + settings.commission_fixed)
    else:
        units = (budget - settings.commission_fixed) / unit_cost
        units = min(units, (budget - settings.commission_minimum) / price)
    if settings.whole_units:
        units = np.floor(units)
    return max(0.0, units)


@compiled
def close_units(book: Book, row: int, units: float, price: float, bar: int, reason: int) -> bool:
    """Close so many units (a positive number) of a trade; return whether it is gone."""
    account, trade = book.account[0], book.trades[row]
    is_whole = units >= abs(trade.units)
    part = trade.units if is_whole else math.copysign(units, trade.units)
    share = trade.entry_commission
    if not is_whole:
        share = trade.entry_commission * (part / trade.units)
    paid = commission(book, part, price)
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
def open_trade(book: Book, row: int, units: float, price: float, bar: int, opened: int) -> None:
    """Open a trade with what the order in this row asks for."""
    account, order = book.account[0], book.orders[row]
    paid = commission(book, units, price)
    account.cash -= units * price + paid
    account.commission += paid
    trade = book.trades[account.num_trades]
    trade.id, trade.symbol, trade.units = order.id, order.symbol, units
    trade.entry_bar, trade.entry_price, trade.entry_commission = bar, price, paid
    trade.stop_loss, trade.take_profit = order.stop_loss, order.take_profit
    trade.opened = opened
    account.num_trades += 1
