"""Within one bar: which orders are filled, at which price, in which order.

The order of high and low within a bar is unknown. The rule is pessimistic: what hurts happens
first, and what helps only where it must have happened. docs/backtest.md states it.
"""

import math

from trainops.kinds.backtest.core.book import (
    AT_OPEN,
    BY_LIMIT,
    BY_STOP,
    BY_STOP_LOSS,
    BY_TAKE_PROFIT,
    NO_TRADE,
    Book,
)
from trainops.kinds.backtest.core.fills import close_units, market_price
from trainops.kinds.backtest.core.orders import expire, fill, is_set, remove_order
from trainops.market.bars import Bars, Floats
from trainops.market.compiled import compiled


@compiled
def fill_market_orders(book: Book, prices: Floats, bar: int) -> None:
    """Fill all market orders at these prices of all symbols: first what closes, then what opens."""
    for symbol in range(len(book.marks)):
        book.marks[symbol] = prices[symbol]
    for closes in (True, False):
        row = 0
        while row < book.account[0].num_orders:
            order = book.orders[row]
            is_market = not is_set(order.limit) and not is_set(order.stop)
            if is_market and (order.trade != NO_TRADE) == closes:
                price = market_price(book, prices[order.symbol], order.amount)
                fill(book, row, price, bar, AT_OPEN)
                remove_order(book, row)
            else:
                row += 1


@compiled
def fill_orders(book: Book, bars: Bars, bar: int) -> None:
    """Fill what this bar fills, from its open to before its close."""
    fill_market_orders(book, bars.open[bar], bar)
    if book.account[0].num_trades:
        _stop_losses(book, bars, bar)
    if book.account[0].num_orders:
        _waiting_orders(book, bars, bar)
        _stop_losses(book, bars, bar)  # those that were opened just now
        expire(book, bar)
    if book.account[0].num_trades:
        _take_profits(book, bars, bar)


@compiled
def _stop_losses(book: Book, bars: Bars, bar: int) -> None:
    """Close what its stop loss reaches.

    What was opened inside this bar gets its stop, not a worse open: the price has been at the
    entry since. Whether the bar reached the stop before the entry is not known; it counts.
    """
    row = 0
    while row < book.account[0].num_trades:
        trade = book.trades[row]
        if is_set(trade.stop_loss):
            price = _stop_price(bars, bar, trade.symbol, -trade.units, trade.stop_loss)
            if is_set(price):
                is_inside = trade.entry_bar == bar and trade.opened != AT_OPEN
                price = market_price(book, trade.stop_loss if is_inside else price, -trade.units)
                book.marks[trade.symbol] = price
                close_units(book, row, abs(trade.units), price, bar, BY_STOP_LOSS)
                continue
        row += 1


@compiled
def _stop_price(bars: Bars, bar: int, symbol: int, units: float, stop: float) -> float:
    """Return where a stop order of this direction is triggered in the bar: NaN if it is not.

    Where the bar opens beyond the stop, that is the open.
    """
    if units > 0:
        return max(bars.open[bar, symbol], stop) if bars.high[bar, symbol] >= stop else math.nan
    return min(bars.open[bar, symbol], stop) if bars.low[bar, symbol] <= stop else math.nan


@compiled
def _limit_price(
    book: Book, bars: Bars, bar: int, symbol: int, units: float, limit: float
) -> float:
    """Return what a limit order of this direction gets in the bar: NaN if nothing.

    The quote, half the spread away, must reach the limit.
    """
    away = 1 + math.copysign(book.settings[0].half_spread, units)
    if units > 0:
        reached = bars.low[bar, symbol] * away <= limit
        return min(bars.open[bar, symbol] * away, limit) if reached else math.nan
    reached = bars.high[bar, symbol] * away >= limit
    return max(bars.open[bar, symbol] * away, limit) if reached else math.nan


@compiled
def _waiting_orders(book: Book, bars: Bars, bar: int) -> None:
    """Fill stop, limit and stop-limit orders that the bar reaches, in the order of placing."""
    row = 0
    while row < book.account[0].num_orders:
        if _fill_waiting(book, bars, bar, row):
            remove_order(book, row)
        else:
            row += 1


@compiled
def _fill_waiting(book: Book, bars: Bars, bar: int, row: int) -> bool:
    """Fill the order in this row if the bar reaches it; return whether it did."""
    order = book.orders[row]
    start, opened = bars.open[bar, order.symbol], BY_LIMIT
    if is_set(order.stop):
        trigger = _stop_price(bars, bar, order.symbol, order.amount, order.stop)
        if not is_set(trigger):
            return False
        price, opened = market_price(book, trigger, order.amount), BY_STOP
        if is_set(order.limit):
            order.stop = math.nan  # from now on a limit order; if not at once, then not before
            is_beyond = price > order.limit if order.amount > 0 else price < order.limit
            if is_beyond:  # the next bar: whether this one came back is not known
                return False
        opened = AT_OPEN if trigger == start else BY_STOP
    else:
        price = _limit_price(book, bars, bar, order.symbol, order.amount, order.limit)
        if not is_set(price):
            return False
        opened = AT_OPEN if price != order.limit else BY_LIMIT
    fill(book, row, price, bar, opened)
    return True


@compiled
def _take_profits(book: Book, bars: Bars, bar: int) -> None:
    """Close what reaches its take profit; not what a limit order opened inside this bar.

    Such a trade may have been opened after the high. One that a stop opened was on its way there.
    """
    row = 0
    while row < book.account[0].num_trades:
        trade = book.trades[row]
        is_inside = trade.entry_bar == bar and trade.opened != AT_OPEN
        if is_set(trade.take_profit) and not (is_inside and trade.opened == BY_LIMIT):
            price = _limit_price(book, bars, bar, trade.symbol, -trade.units, trade.take_profit)
            if is_set(price):
                price = trade.take_profit if is_inside else price
                book.marks[trade.symbol] = price
                close_units(book, row, abs(trade.units), price, bar, BY_TAKE_PROFIT)
                continue
        row += 1
