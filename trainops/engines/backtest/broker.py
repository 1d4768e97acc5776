"""The broker of one backtest: the compiled core, its book, and the streams that it fills."""

import math
from typing import Any

import numpy as np

from trainops.engines.backtest.config import BacktestConfig
from trainops.engines.backtest.core import orders as core_orders
from trainops.engines.backtest.core.bars import close_everything, fill_market_orders, run_bars
from trainops.engines.backtest.core.book import (
    ACCOUNT,
    AT_END,
    CLOSED,
    FOR_EVER,
    NO_TRADE,
    ORDER,
    SETTINGS,
    TRADE,
    Book,
    Floats,
    Plan,
    Rows,
)
from trainops.engines.backtest.core.fills import equity_of
from trainops.engines.backtest.frozen_book import freeze_book, thaw_book
from trainops.engines.backtest.prices import Prices
from trainops.engines.backtest.streams import append_trades, equity_stream, trade_stream
from trainops.engines.stream import Stream

EMPTY = np.empty((0, 0))
NO_PLAN = Plan(EMPTY, EMPTY, EMPTY, EMPTY, EMPTY)
ROWS, CLOSED_ROWS = 64, 1024


class Broker:
    """Goes over bars, fills orders, keeps the books.

    It may lag behind the strategy's bar: nothing that it does in a bar depends on later decisions,
    so bars are done when somebody asks, many in one call.
    """

    def __init__(self, config: BacktestConfig, prices: Prices) -> None:
        self.prices = prices
        self.equity, self._trades = equity_stream(), trade_stream()
        self.next_bar = 0
        self._chunk_start, self._chunk = 0, np.empty(0)
        account = np.zeros(1, dtype=ACCOUNT)
        account["cash"] = config.cash
        self.book = self._new_book(settings_of(config), account, *_room(0))

    def begin_chunk(self, end: int) -> None:
        """Make room for the equity up to before this bar."""
        self._chunk_start = self.next_bar
        self._chunk = np.empty(end - self.next_bar)

    @property
    def chunk_end(self) -> int:
        return self._chunk_start + len(self._chunk)

    def end_early(self, end: int) -> None:
        """Let the chunk end before this bar."""
        self._chunk = self._chunk[: end - self._chunk_start]

    def go_to(self, end: int, plan: Plan = NO_PLAN) -> None:
        """Do all bars before `end`, within the chunk."""
        while self.next_bar < end:
            self.next_bar = run_bars(
                self.book,
                self.prices.bars,
                plan,
                self.next_bar,
                end,
                self._chunk,
                self._chunk_start,
            )
            if self.next_bar < end:
                self._collect()
                self.make_room()

    def end_chunk(self) -> Floats:
        """Append the chunk's equity to its stream, and return it."""
        self.equity.append({"equity": self._chunk})
        return self._chunk

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
        core_orders.switch(
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
        if self.next_bar:
            self.book.marks[:] = self.prices.bars.close[self.next_bar - 1]
        return equity_of(self.book)

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

    def closings(self, prices: Floats, bar: int) -> tuple[Rows, float]:
        """Return what closing everything at these prices would leave: the trades, and the cash."""
        self._collect()
        copy = Book(*(part.copy() for part in self.book))
        close_everything(copy, prices, bar, AT_END)
        return copy.closed[: copy.account["num_closed"][0]], float(copy.account["cash"][0])

    def state_dict(self) -> dict[str, Any]:
        return freeze_book(self.book)

    def thawed(self, part: Any, equity: Stream, trades: Stream, bar: int) -> "Broker":
        """Return a broker like this one, gone on to a saved bar. Raises IncompatibleState."""
        account, orders, open_trades = thaw_book(part, len(self.prices.symbols), bar)
        other = Broker.__new__(Broker)
        other.prices, other.next_bar = self.prices, bar
        other.equity, other._trades = equity.copy(), trades.copy()
        other._chunk_start, other._chunk = bar, np.empty(0)
        room = _room(len(orders) + len(open_trades))
        room[0][: len(orders)], room[1][: len(open_trades)] = orders, open_trades
        other.book = other._new_book(self.book.settings, account, *room)
        return other

    def make_room(self) -> None:
        """Enlarge the tables where a bar and its decisions might not fit."""
        account = self.account
        if account["num_closed"] > len(self.book.closed) // 2:
            self._collect()
        if 4 * (account["num_trades"] + account["num_orders"] + 2) < len(self.book.orders):
            return
        room = _room(2 * len(self.book.orders))
        room[0][: len(self.book.orders)] = self.book.orders
        room[1][: len(self.book.trades)] = self.book.trades
        room[2][: account["num_closed"]] = self.book.closed[: account["num_closed"]]
        self.book = self._new_book(self.book.settings, self.book.account, *room)

    def _new_book(
        self, settings: Rows, account: Rows, orders: Rows, trades: Rows, closed: Rows
    ) -> Book:
        marks = np.zeros(len(self.prices.symbols))
        return Book(settings, account, orders, trades, closed, marks)

    def _collect(self) -> None:
        num_closed = self.account["num_closed"]
        if num_closed:
            append_trades(self._trades, self.book.closed[:num_closed].copy())
            self.account["num_closed"] = 0


def _room(num_rows: int) -> tuple[Rows, Rows, Rows]:
    """Return tables for so many open orders and trades, with space to spare."""
    size = max(ROWS, 8 * num_rows)
    return np.zeros(size, ORDER), np.zeros(size, TRADE), np.zeros(CLOSED_ROWS + 4 * size, CLOSED)


def settings_of(config: BacktestConfig) -> Rows:
    """Return the broker's terms as the core reads them."""
    settings = np.zeros(1, dtype=SETTINGS)
    settings["commission_relative"] = config.commission.relative
    settings["commission_fixed"] = config.commission.fixed
    settings["commission_minimum"] = config.commission.minimum
    settings["half_spread"] = config.spread / 2
    settings["slippage"] = config.slippage
    settings["leverage"] = 1 / config.margin
    settings["maintenance"] = config.maintenance_margin
    settings["sizing"] = config.sizing.amount
    settings["sizing_is_units"] = config.sizing.by == "units"
    settings["whole_units"] = config.sizing.whole_units
    settings["fixed_for_each_unit"] = config.sizing.fixed_commission_for_each_unit
    settings["same_close"] = config.fill == "same_close"
    return settings
