"""The broker of one backtest: the compiled core, its book, and the streams that it fills."""

import math
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainops.kinds.backtest.config import BacktestConfig
from trainops.kinds.backtest.core import orders as core_orders
from trainops.kinds.backtest.core.bars import (
    close_at_market,
    has_room,
    run_bars,
)
from trainops.kinds.backtest.core.book import (
    ACCOUNT,
    AT_END,
    CLOSED,
    FOR_EVER,
    NO_TRADE,
    ORDER,
    TRADE,
    Book,
    Rows,
    VectorOrders,
)
from trainops.kinds.backtest.core.fills import equity_of
from trainops.kinds.backtest.core.matching import fill_market_orders
from trainops.kinds.backtest.frozen_book import freeze_book, thaw_book
from trainops.kinds.backtest.streams import EquityCurve, append_trades, trade_stream
from trainops.kinds.backtest.terms import settings_of
from trainops.market.bars import Floats
from trainops.market.compiled import settled
from trainops.market.prices import Prices
from trainops.runtime.checkpoint.stream import Stream

EMPTY = np.empty((0, 0))
NO_PLAN = VectorOrders(EMPTY, EMPTY, EMPTY, EMPTY, EMPTY)
ROWS, CLOSED_ROWS = 64, 1024


class Broker:
    """Goes over bars, fills orders, keeps the books.

    It may lag behind the strategy's bar: nothing that it does in a bar depends on later decisions,
    so bars are computed on demand, many in one call.
    """

    def __init__(self, config: BacktestConfig, prices: Prices) -> None:
        self.prices = prices
        self.next_bar = 0
        self.has_ordered = False  # since the last look
        account = np.zeros(1, dtype=ACCOUNT)
        account["cash"] = config.cash
        self.book = _new_book(settings_of(config), account, prices, *_room(0))
        self._curve, self._trades = EquityCurve(), trade_stream()
        self._begin()

    def _begin(self) -> None:
        self._chunk_start = self.chunk_end = self.next_bar
        nan, book = math.nan, self.book
        self._has_room = settled(has_room, book)
        self._run_bars = settled(
            run_bars, book, self.prices.bars, NO_PLAN, 0, 0, self._curve.buffer, 0
        )
        self._switch = settled(core_orders.switch, book, 0, nan, nan, nan, nan, nan, 0)

    def begin_chunk(self, end: int) -> None:
        """Make room for the equity up to before this bar."""
        self._chunk_start, self.chunk_end = self.next_bar, end
        self._curve.make_room(end)

    def go_to(self, end: int, plan: VectorOrders = NO_PLAN) -> None:
        """Do all bars before `end`, within the chunk."""
        curve = self._curve
        while self.next_bar < end:
            self.next_bar = self._run_bars(
                self.book, self.prices.bars, plan, self.next_bar, end, curve.buffer, curve.first_bar
            )
            if self.next_bar < end:
                self.make_room()

    def end_chunk(self) -> Floats:
        """Return the equity of the chunk's bars."""
        return self._curve.since(self._chunk_start, self.next_bar)

    def place(
        self,
        amount: float,
        *,
        bar: int,
        symbol: int = 0,
        is_fraction: bool = False,
        limit: float = math.nan,
        stop: float = math.nan,
        stop_loss: float = math.nan,
        take_profit: float = math.nan,
        trade: int = NO_TRADE,
        last_bar: int = FOR_EVER,
    ) -> int:
        """Place an order at the close of a bar, and return its id."""
        self.make_room()
        self.has_ordered = True
        return core_orders.place(
            self.book, symbol, float(amount), is_fraction, float(limit), float(stop),
            float(stop_loss), float(take_profit), trade, bar, last_bar,
        )  # fmt: skip

    def switch(
        self,
        target: float,
        *,
        bar: int,
        symbol: int = 0,
        limit: float = math.nan,
        stop: float = math.nan,
        stop_loss: float = math.nan,
        take_profit: float = math.nan,
    ) -> None:
        """Cancel what is open, close what is held, and enter a position of the configured size."""
        self.make_room()
        self.has_ordered = True
        self._switch(
            self.book, symbol, float(target), float(limit), float(stop), float(stop_loss),
            float(take_profit), bar,
        )  # fmt: skip

    def cancel(self, symbol: int, order_id: int | None) -> None:
        """Cancel one order, or all of a symbol but those that close a trade."""
        if order_id is None:
            core_orders.cancel_entries(self.book, symbol)
            return
        rows = np.flatnonzero(self.open_orders["id"] == order_id)
        for row in rows.tolist():
            core_orders.remove_order(self.book, row)

    def fill_at_close(self, bar: int) -> None:
        """Fill market orders at the close of the bar they were placed in."""
        self.make_room()
        fill_market_orders(self.book, self.prices.bars.close[bar], bar)

    def value(self) -> float:
        """Return the equity at the close of the newest bar that was done."""
        closes = self.prices.bars.close[max(0, self.next_bar - 1)]
        return equity_of(self.book._replace(marks=closes))

    def positions(self) -> dict[str, float]:
        """Return the units held of each symbol, short ones negative."""
        held = self.open_trades
        return {
            symbol: float(held["units"][held["symbol"] == number].sum())
            for number, symbol in enumerate(self.prices.symbols)
        }

    @property
    def account(self) -> Any:
        """One row of ACCOUNT."""
        return self.book.account[0]

    @property
    def equity(self) -> Stream:
        """The equity of every bar that is done, chunk by chunk."""
        return self._curve.stream

    @property
    def trades(self) -> Stream:
        """All closed trades."""
        self._collect()
        return self._trades

    @property
    def open_trades(self) -> Rows:
        return self.book.trades[: self.account["num_trades"]]

    @property
    def open_orders(self) -> Rows:
        return self.book.orders[: self.account["num_orders"]]

    def closings(self, prices: Floats, bars: NDArray[np.int64]) -> tuple[Rows, float]:
        """Return what closing everything would leave: the trades, and the cash.

        Each open trade is closed at its price and bar of these; the book stays as it is.
        """
        self._collect()
        book = Book(*(part.copy() for part in self.book))
        for price, bar in zip(prices.tolist(), bars.tolist(), strict=True):
            close_at_market(book, 0, price, bar, AT_END)
        return book.closed[: book.account["num_closed"][0]], float(book.account["cash"][0])

    def state_dict(self) -> dict[str, Any]:
        return freeze_book(self.book)

    def thawed(self, part: Any, equity: Stream, trades: Stream, bar: int) -> "Broker":
        """Return a broker like this one, gone on to a saved bar. Raises IncompatibleState."""
        account, orders, open_trades = thaw_book(part, len(self.prices.symbols), bar)
        room = _room(len(orders) + len(open_trades))
        room[0][: len(orders)], room[1][: len(open_trades)] = orders, open_trades
        other = copy(self)
        other.next_bar = bar
        other.book = _new_book(self.book.settings, account, self.prices, *room)
        other._curve, other._trades = EquityCurve(equity), trades.copy()
        other._begin()
        return other

    def make_room(self) -> None:
        """Collect closed trades and enlarge the tables where a bar might not fit."""
        if self._has_room(self.book):
            return
        self._collect()
        if self._has_room(self.book):
            return
        book = self.book
        room = _room(len(book.orders))
        room[0][: len(book.orders)], room[1][: len(book.trades)] = book.orders, book.trades
        self.book = _new_book(book.settings, book.account, self.prices, *room)

    def _collect(self) -> None:
        num_closed = self.account["num_closed"]
        if num_closed:
            append_trades(self._trades, self.book.closed[:num_closed].copy())
            self.account["num_closed"] = 0


def _new_book(
    settings: Rows, account: Rows, prices: Prices, orders: Rows, trades: Rows, closed: Rows
) -> Book:
    return Book(settings, account, orders, trades, closed, np.zeros(len(prices.symbols)))


def _room(num_rows: int) -> tuple[Rows, Rows, Rows]:
    """Return tables for N open orders and trades, with space to spare."""
    size = max(ROWS, 8 * num_rows)
    return np.zeros(size, ORDER), np.zeros(size, TRADE), np.zeros(CLOSED_ROWS + 4 * size, CLOSED)
