"""One bar after the other: which orders are filled, at which price, in which order.

Within a bar nobody knows in which order high and low came. The rule is pessimistic: what hurts
happens first, and what helps only where it must have happened. docs/backtest.md states it.
"""

import math

from trainops.engines.backtest.compiled import compiled, inlined
from trainops.engines.backtest.core.book import (
    AT_OPEN,
    BY_LIMIT,
    BY_LIQUIDATION,
    BY_STOP,
    BY_STOP_LOSS,
    BY_TAKE_PROFIT,
    NO_TRADE,
    Bars,
    Book,
    Floats,
    Plan,
    Rows,
)
from trainops.engines.backtest.core.fills import (
    close_units,
    market_price,
)
from trainops.engines.backtest.core.orders import expire, fill, is_set, remove_order, switch


@compiled
def run_bars(
    book: Book, bars: Bars, plan: Plan, first: int, end: int, equity: Floats, offset: int
) -> int:
    """Go over the bars from `first` to before `end`; write the equity of bar i at i - offset.

    Where `plan` is not empty, it decides at the close of each bar. Returns the next bar to do:
    less than `end` if rows ran out, which whoever called provides.
    """
    account, trades, closes = book.account[0], book.trades, bars.close
    for bar in range(first, end):
        # Most bars fill nothing. Calls are kept out of their way: each costs more than a bar.
        may_fill = account.num_orders > 0 or _has_stops(trades, account.num_trades)
        decides = len(plan.target) > 0 and _wants_any(plan.target, bar)
        if (may_fill or decides) and not has_room(book):
            return bar
        if may_fill:
            _fill_orders(book, bars, bar)
        total, exposure = account.cash, 0.0
        for i in range(account.num_trades):
            value = trades[i].units * closes[bar, trades[i].symbol]
            total += value
            exposure += abs(value)
        if account.num_trades and total <= book.settings[0].maintenance * exposure:
            account.liquidations += 1
            close_everything(book, closes[bar], bar, BY_LIQUIDATION)
            total = account.cash
        equity[bar - offset] = total
        if decides:
            decide(book, bars, plan, bar)
    return end


@inlined
def _has_stops(trades: Rows, num_trades: int) -> bool:
    found = False
    for i in range(num_trades):
        found = found or is_set(trades[i].stop_loss) or is_set(trades[i].take_profit)
    return found


@inlined
def _wants_any(targets: Floats, bar: int) -> bool:
    found = False
    for symbol in range(targets.shape[1]):
        found = found or is_set(targets[bar, symbol])
    return found


@compiled
def has_room(book: Book) -> bool:
    """Whether a bar and the decisions at its close cannot run out of rows."""
    account, num_symbols = book.account[0], len(book.marks)
    needed = 2 * (account.num_trades + account.num_orders) + 2 * num_symbols
    return bool(
        needed <= len(book.trades)
        and needed <= len(book.orders)
        and account.num_closed + 2 * needed <= len(book.closed)
    )


@compiled
def decide(book: Book, bars: Bars, plan: Plan, bar: int) -> None:
    """Do what the plan says at the close of this bar."""
    for symbol in range(len(book.marks)):
        target = plan.target[bar, symbol]
        if not is_set(target):
            continue
        switch(
            book,
            symbol,
            target,
            _price(plan.limit, bar, symbol),
            _price(plan.stop, bar, symbol),
            _price(plan.stop_loss, bar, symbol),
            _price(plan.take_profit, bar, symbol),
            bar,
        )
    if book.settings[0].same_close:
        fill_market_orders(book, bars.close[bar], bar)


@compiled
def _price(prices: Floats, bar: int, symbol: int) -> float:
    return prices[bar, symbol] if len(prices) else math.nan


@compiled
def fill_market_orders(book: Book, prices: Floats, bar: int) -> None:
    """Fill all market orders at these prices: first what closes, then what opens."""
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
def _fill_orders(book: Book, bars: Bars, bar: int) -> None:
    for symbol in range(len(book.marks)):
        book.marks[symbol] = bars.open[bar, symbol]
    if book.account[0].num_orders:
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


@compiled
def close_everything(book: Book, prices: Floats, bar: int, reason: int) -> None:
    """Close all trades at these prices, and cancel every order."""
    book.account[0].num_orders = 0
    while book.account[0].num_trades:
        trade = book.trades[0]
        price = market_price(book, prices[trade.symbol], -trade.units)
        book.marks[trade.symbol] = price
        close_units(book, 0, abs(trade.units), price, bar, reason)
