"""Where an event strategy sits: it sees the bar that just closed, and gives its orders."""

import math
from typing import Any

from trainops.kinds.backtest.broker import Broker
from trainops.kinds.backtest.core.book import FOR_EVER
from trainops.market.bars import Floats
from trainops.market.times import iso

NAN = math.nan


class Desk:
    """The newest bar, the account, and orders on one symbol.

    The account is that at the bar's close, before the orders given now: those are filled at the
    next bar, or at this close where the backtest says so.
    """

    __slots__ = ("_broker", "bar", "close", "high", "low", "open", "symbol")

    def __init__(self, broker: Broker, symbol: int = 0) -> None:
        self._broker = broker
        self.symbol = symbol
        self.bar = -1  # its number, from 0
        self.open = self.high = self.low = self.close = NAN

    @property
    def time(self) -> str:
        return iso(int(self._broker.prices.times[self.bar]))

    @property
    def volume(self) -> float:
        """What was traded in the bar; NaN where the table does not say."""
        volume = self._broker.prices.volume
        return float(volume[self.bar, self.symbol]) if len(volume) else NAN

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of all symbols; this desk is that of number `symbol`."""
        return self._broker.prices.symbols

    @property
    def closes(self) -> Floats:
        """The closes of all symbols at this bar."""
        closes: Floats = self._broker.prices.bars.close[self.bar].copy()
        return closes

    def of(self, symbol: int) -> "Desk":
        """Return the desk of another symbol, at this bar and of the same account."""
        desk, bars = Desk(self._broker, symbol), self._broker.prices.bars
        desk.bar = self.bar
        desk.open, desk.high, desk.low, desk.close = (
            float(prices[self.bar, symbol]) for prices in bars
        )
        return desk

    @property
    def cash(self) -> float:
        return float(self._settled().account["cash"])

    @property
    def equity(self) -> float:
        return self._settled().value()

    @property
    def position(self) -> float:
        """Units held, negative when short."""
        held = self._settled().open_trades
        return float(held["units"][held["symbol"] == self.symbol].sum())

    @property
    def trades(self) -> list[dict[str, Any]]:
        """The open trades: id, units, entry_bar, entry_price, stop_loss, take_profit, ..."""
        return _as_dicts(self._settled().open_trades)

    @property
    def orders(self) -> list[dict[str, Any]]:
        """The open orders: id, amount, limit, stop, ..."""
        return _as_dicts(self._settled().open_orders)

    def buy(self, units: float | None = None, **terms: Any) -> int:
        """Order to buy; see `order`."""
        return self.order(1, units, **terms)

    def sell(self, units: float | None = None, **terms: Any) -> int:
        """Order to sell, also short; see `order`."""
        return self.order(-1, units, **terms)

    def order(
        self,
        direction: int,
        units: float | None = None,
        *,
        fraction: float | None = None,
        limit: float = NAN,
        stop: float = NAN,
        stop_loss: float = NAN,
        take_profit: float = NAN,
        for_bars: int | None = None,
    ) -> int:
        """Place an order and return its id. Trades of the other direction are closed by it first.

        Its size is `units`, or a `fraction` of the equity, or what the backtest's config says. It
        is a market order, or one with a limit, a stop, or both. It is good till cancelled, or for
        `for_bars` bars. `stop_loss` and `take_profit` protect the trade that it opens.
        """
        size, is_fraction = self._size(units, fraction)
        last_bar = FOR_EVER if for_bars is None else self.bar + for_bars
        return self._settled().place(
            math.copysign(size, direction), bar=self.bar, symbol=self.symbol,
            is_fraction=is_fraction, limit=limit, stop=stop, stop_loss=stop_loss,
            take_profit=take_profit, last_bar=last_bar,
        )  # fmt: skip

    def switch(
        self,
        target: float,
        *,
        limit: float = NAN,
        stop: float = NAN,
        stop_loss: float = NAN,
        take_profit: float = NAN,
    ) -> None:
        """Cancel open orders, close open trades, and enter a position: 1 long, -1 short, 0 none."""
        self._settled().switch(
            target, bar=self.bar, symbol=self.symbol, limit=limit, stop=stop,
            stop_loss=stop_loss, take_profit=take_profit,
        )  # fmt: skip

    def close_position(self, share: float = 1.0) -> None:
        """Order to close this share of every open trade, at the market."""
        if not 0 < share <= 1:
            raise ValueError(f"got {share!r}; a share must be above 0 and at most 1")
        broker = self._settled()
        for trade in broker.open_trades.copy():
            if trade["symbol"] == self.symbol:
                units = trade["units"] * share
                if broker.book.settings[0]["whole_units"] and share < 1:
                    units = math.copysign(max(1, round(abs(units))), units)
                broker.place(-units, bar=self.bar, symbol=self.symbol, trade=int(trade["id"]))

    def protect(
        self, trade_id: int, *, stop_loss: float | None = None, take_profit: float | None = None
    ) -> None:
        """Move the stop loss or take profit of an open trade; NaN takes it away."""
        trades = self._settled().open_trades
        if trade_id not in trades["id"]:
            raise ValueError(f"there is no open trade {trade_id}")
        for name, price in (("stop_loss", stop_loss), ("take_profit", take_profit)):
            if price is not None:
                trades[name][trades["id"] == trade_id] = price

    def cancel(self, order_id: int | None = None) -> None:
        """Cancel one order, or all that enter."""
        self._settled().cancel(self.symbol, order_id)

    def _size(self, units: float | None, fraction: float | None) -> tuple[float, bool]:
        if units is not None and fraction is not None:
            raise ValueError("an order's size must be in units or a fraction, not both")
        settings = self._broker.book.settings[0]
        size, is_fraction = float(settings["sizing"]), not settings["sizing_is_units"]
        if units is not None:
            size, is_fraction = units, False
        elif fraction is not None:
            size, is_fraction = fraction, True
        if not size > 0:
            raise ValueError(f"got {size!r}; an order's size must be above 0")
        return size, is_fraction

    def _settled(self) -> Broker:
        """Return the broker after this bar: its orders were filled, before new ones are."""
        self._broker.go_to(self.bar + 1)
        return self._broker


def _as_dicts(rows: Any) -> list[dict[str, Any]]:
    names = rows.dtype.names
    return [dict(zip(names, row.tolist(), strict=True)) for row in rows]
