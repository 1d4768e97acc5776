"""One bar after the other: fills, the equity at the close, and what a plan decides there."""

import math

from trainops.kinds.backtest.core.book import BY_LIQUIDATION, Book, Rows, VectorOrders
from trainops.kinds.backtest.core.fills import close_units, market_price
from trainops.kinds.backtest.core.matching import fill_market_orders, fill_orders
from trainops.kinds.backtest.core.orders import is_set, switch
from trainops.market.bars import Bars, Floats
from trainops.market.compiled import compiled, inlined


@compiled
def run_bars(
    book: Book, bars: Bars, plan: VectorOrders, first: int, end: int, equity: Floats, offset: int
) -> int:
    """Go over the bars from `first` to before `end`; write the equity of bar i at i - offset.

    Where `plan` is not empty, it decides at the close of each bar. Returns the next bar to do:
    less than `end` if rows ran out, which the caller provides.
    """
    account, trades, closes = book.account[0], book.trades, bars.close
    maintenance, has_plan = book.settings[0].maintenance, len(plan.target) > 0
    for bar in range(first, end):
        # Most bars fill nothing. Calls are kept out of their way: each costs more than a bar.
        may_fill = account.num_orders > 0 or _has_stops(trades, account.num_trades)
        decides = has_plan and _wants_any(plan.target, bar)
        if (may_fill or decides) and not has_room(book):
            return bar
        if may_fill:
            fill_orders(book, bars, bar)
        total, exposure = account.cash, 0.0
        for i in range(account.num_trades):
            value = trades[i].units * closes[bar, trades[i].symbol]
            total += value
            exposure += abs(value)
        if account.num_trades and total <= maintenance * exposure:
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
def decide(book: Book, bars: Bars, plan: VectorOrders, bar: int) -> None:
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
def close_everything(book: Book, prices: Floats, bar: int, reason: int) -> None:
    """Close all trades at these prices, and cancel every order."""
    book.account[0].num_orders = 0
    while book.account[0].num_trades:
        close_at_market(book, 0, prices[book.trades[0].symbol], bar, reason)


@compiled
def close_at_market(book: Book, row: int, price: float, bar: int, reason: int) -> None:
    """Close the trade in this row as a market order does where the price is this one."""
    trade = book.trades[row]
    price = market_price(book, price, -trade.units)
    book.marks[trade.symbol] = price
    close_units(book, row, abs(trade.units), price, bar, reason)
