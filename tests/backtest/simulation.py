"""A broker as docs/backtest.md describes it: slow, obvious, and written from that page alone.

Imports nothing of the engine, which is searched for differences from it (test_simulation.py).
Lists are of bars, and of symbols within a bar.
"""

import math
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import groupby
from zoneinfo import ZoneInfo

DUST = 1e-9
MINUTES = {"1min": 1, "5min": 5, "15min": 15, "30min": 30, "1h": 60, "4h": 240}


@dataclass
class Terms:
    cash: float = 10_000.0
    relative: float = 0.0  # commission
    fixed: float = 0.0
    minimum: float = 0.0
    spread: float = 0.0
    slippage: float = 0.0
    margin: float = 1.0
    maintenance_margin: float = 0.0
    fill: str = "next_open"
    size_by: str = "fraction"
    size: float = 1.0
    whole_units: bool = True
    fixed_commission_for_each_unit: bool = False
    finish: str = "close"


@dataclass
class Order:
    id: int
    symbol: int
    direction: int
    amount: float
    is_fraction: bool
    limit: float | None
    stop: float | None
    stop_loss: float | None
    take_profit: float | None
    last_bar: float
    closes: int | None = None  # the id of a trade

    @property
    def is_market(self):
        return self.limit is None and self.stop is None


@dataclass
class Trade:
    id: int
    symbol: int
    direction: int
    units: float  # positive
    bar: int
    price: float
    commission: float
    stop_loss: float | None
    take_profit: float | None
    opened_at: str  # "open" (or a close), "limit", "stop"


@dataclass
class Closed:
    symbol: int
    units: float  # signed
    entry_bar: int
    exit_bar: int
    entry_price: float
    exit_price: float
    commission: float
    profit: float
    reason: str


@dataclass
class Bar:
    open: list
    high: list
    low: list
    close: list


@dataclass
class Calendar:
    """Which bars of a series are traded, and how coarse they are."""

    timezone: str = "UTC"
    start: date | None = None
    until: date | None = None
    resample: str | None = None

    def bars(self, times, bars):
        """Return the bars that are traded, of those at these times (aware datetimes)."""
        clocks = [each.astimezone(ZoneInfo(self.timezone)).replace(tzinfo=None) for each in times]
        traded = [pair for pair in zip(clocks, bars, strict=True) if self.is_traded(pair[0].date())]
        if self.resample is None:
            return [bar for _, bar in traded]
        intervals = groupby(traded, key=lambda pair: self.interval(pair[0]))
        return [merged([bar for _, bar in pairs]) for _, pairs in intervals]

    def is_traded(self, day):
        is_early = self.start is not None and day < self.start
        return not is_early and (self.until is None or day < self.until)

    def interval(self, clock):
        """Return when the interval began that a time on the clock lies in."""
        midnight = clock.replace(hour=0, minute=0, second=0, microsecond=0)
        if self.resample == "1w":
            return midnight - timedelta(days=clock.weekday())
        if self.resample == "1d":
            return midnight
        minutes = clock.hour * 60 + clock.minute
        return midnight + timedelta(minutes=minutes - minutes % MINUTES[self.resample])


def merged(bars):
    """Return one bar of several: first open, highest, lowest, last close of each symbol."""
    return Bar(
        bars[0].open,
        [max(each) for each in zip(*(bar.high for bar in bars), strict=True)],
        [min(each) for each in zip(*(bar.low for bar in bars), strict=True)],
        bars[-1].close,
    )


@dataclass
class Simulation:
    terms: Terms
    bars: list
    orders: list = field(default_factory=list)
    trades: list = field(default_factory=list)
    closed: list = field(default_factory=list)
    equity: list = field(default_factory=list)
    refused: int = 0
    liquidations: int = 0
    next_id: int = 0
    bar: int = -1

    def __post_init__(self):
        self.cash = self.terms.cash
        self.leverage = 1 / self.terms.margin
        self.symbols = range(len(self.bars[0].close))
        self.prices = [math.nan for _ in self.symbols]

    # From bar to bar

    def run(self, decide):
        """Do all bars; `decide(desk)` is called for each symbol at each close."""
        for number, bar in enumerate(self.bars):
            self.bar = number
            self.do_bar(bar)
            for symbol in self.symbols:
                decide(Desk(self, symbol))
            if self.terms.fill == "same_close":
                self.prices = list(bar.close)
                self.fill_market_orders(bar.close)
        return self

    def do_bar(self, bar):
        self.prices = list(bar.open)
        self.fill_market_orders(bar.open)  # step 1
        self.stop_losses(bar, of_entries=False)  # step 2
        entered = self.waiting_orders(bar)  # step 3
        self.stop_losses(bar, of_entries=True, entered=entered)  # step 4
        self.take_profits(bar)  # step 5
        self.orders = [order for order in self.orders if order.last_bar > self.bar]  # step 6
        equity = self.equity_at(bar.close)  # step 7
        value = sum(trade.units * bar.close[trade.symbol] for trade in self.trades)
        if self.trades and equity <= self.terms.maintenance_margin * value:
            self.liquidations += 1
            self.orders = []
            for trade in list(self.trades):
                price = self.worse(bar.close[trade.symbol], -trade.direction)
                self.close(trade, trade.units, price, "liquidation")
            equity = self.cash
        self.equity.append(equity)

    def finish(self):
        """Return closed trades, equity and the entry bars of open trades as the report has them."""
        last = len(self.bars) - 1
        if self.terms.finish == "hold" or not self.trades:
            return self.closed, self.equity, [trade.bar for trade in self.trades]
        for trade in list(self.trades):
            self.bar, price = last, self.bars[last].close[trade.symbol]
            if self.terms.finish == "open" and self.terms.fill == "next_open":
                if trade.bar < last or trade.opened_at == "open":
                    price = self.bars[last].open[trade.symbol]
            elif self.terms.finish == "open" and last > 0 and trade.bar < last:
                self.bar, price = last - 1, self.bars[last - 1].close[trade.symbol]
            self.close(trade, trade.units, self.worse(price, -trade.direction), "end")
        return self.closed, [*self.equity[:-1], self.cash], []

    # Steps of a bar

    def fill_market_orders(self, prices):
        for closing in (True, False):
            for order in list(self.orders):
                if order.is_market and (order.closes is not None) == closing:
                    self.orders.remove(order)
                    price = self.worse(prices[order.symbol], order.direction)
                    self.fill(order, price, "open")

    def stop_losses(self, bar, *, of_entries, entered=()):
        for trade in list(self.trades):
            if trade.stop_loss is None or (trade.id in entered) != of_entries:
                continue
            price = reached_stop(bar, trade.symbol, -trade.direction, trade.stop_loss)
            if price is not None:
                if trade.bar == self.bar and trade.opened_at != "open":
                    price = trade.stop_loss
                price = self.worse(price, -trade.direction)
                self.prices[trade.symbol] = price
                self.close(trade, trade.units, price, "stop_loss")

    def waiting_orders(self, bar):
        """Return the ids of the trades that were opened."""
        before = {trade.id for trade in self.trades}
        for order in list(self.orders):
            if order.is_market:
                continue
            if order.stop is not None:
                trigger = reached_stop(bar, order.symbol, order.direction, order.stop)
                if trigger is None:
                    continue
                price = self.worse(trigger, order.direction)
                at = "open" if trigger == bar.open[order.symbol] else "stop"
                if order.limit is not None:
                    order.stop = None
                    if order.direction * price > order.direction * order.limit:
                        continue
            else:
                price = self.reached_limit(bar, order.symbol, order.direction, order.limit)
                if price is None:
                    continue
                at = "limit" if price == order.limit else "open"
            self.orders.remove(order)
            self.fill(order, price, at)
        return {trade.id for trade in self.trades} - before

    def take_profits(self, bar):
        for trade in list(self.trades):
            is_inside = trade.bar == self.bar and trade.opened_at != "open"
            if trade.take_profit is None or (is_inside and trade.opened_at == "limit"):
                continue
            price = self.reached_limit(bar, trade.symbol, -trade.direction, trade.take_profit)
            if price is not None:
                price = trade.take_profit if is_inside else price
                self.close(trade, trade.units, price, "take_profit")

    # Prices

    def worse(self, price, direction):
        """Return what a market or stop order gets."""
        return price * (1 + direction * (self.terms.spread / 2 + self.terms.slippage))

    def reached_limit(self, bar, symbol, direction, limit):
        quote = 1 + direction * self.terms.spread / 2
        if direction > 0 and bar.low[symbol] * quote <= limit:
            return min(bar.open[symbol] * quote, limit)
        if direction < 0 and bar.high[symbol] * quote >= limit:
            return max(bar.open[symbol] * quote, limit)
        return None

    # The account

    def equity_at(self, prices):
        return self.cash + sum(t.direction * t.units * prices[t.symbol] for t in self.trades)

    def free_value(self):
        """Return the value that the free margin covers."""
        bound = sum(t.units * self.prices[t.symbol] for t in self.trades) / self.leverage
        return max(0.0, self.equity_at(self.prices) - bound) * self.leverage

    def commission(self, units, price):
        """Return what an order costs of which so many units are filled."""
        if units == 0:
            return 0.0
        terms = self.terms
        return max(terms.minimum, terms.fixed + terms.relative * units * price)

    def payable(self, budget, price, done=0.0):
        """Return the units that a budget pays for, after `done` units of the same order."""
        terms = self.terms
        if terms.fixed_commission_for_each_unit:
            units = budget // (price * (1 + terms.relative) + terms.fixed)
        else:
            had = self.commission(done, price)  # is paid already
            by_share = budget + had - terms.fixed - terms.relative * done * price
            units = min(
                by_share / (price * (1 + terms.relative)), (budget + had - terms.minimum) / price
            )
        return max(0.0, math.floor(units) if terms.whole_units else units)

    # Fills

    def fill(self, order, price, at):
        self.prices[order.symbol] = price
        if order.closes is not None:
            for trade in list(self.trades):
                if trade.id == order.closes:
                    self.close(trade, without_dust(order.amount, trade.units, 0), price, "order")
            return
        wanted = order.amount
        if order.is_fraction:
            budget = max(0.0, self.equity_at(self.prices)) * self.leverage * order.amount
            wanted = self.payable(budget, price)
        left = self.net(order, wanted, price)
        if wanted == 0 or left > 0:
            self.open(order, wanted, left, price, at)

    def net(self, order, wanted, price):
        """Close trades of the other direction, and return the units that are left to open."""
        left, done = wanted, 0.0
        for trade in list(self.trades):
            if trade.symbol == order.symbol and trade.direction != order.direction and left > 0:
                units = without_dust(left, trade.units, wanted)
                left = 0.0 if left - units <= DUST * wanted else left - units
                self.close(trade, units, price, "order", done)
                done += units
        return left

    def open(self, order, wanted, units, price, at):
        """Open a trade with as much of what is left of an order as the margin covers."""
        done = wanted - units
        if order.is_fraction:
            units = min(units, self.payable(self.free_value(), price, done))
        elif units * price + self.added(done, units, price) > self.free_value():
            units = 0.0
        if units <= DUST * wanted:
            self.refused += 1
            return
        paid = self.added(done, units, price)
        self.cash -= order.direction * units * price + paid
        self.trades.append(
            Trade(order.id, order.symbol, order.direction, units, self.bar, price, paid,
                  order.stop_loss, order.take_profit, at)
        )  # fmt: skip

    def added(self, done, units, price):
        """Return what further units add to an order's commission."""
        return self.commission(done + units, price) - self.commission(done, price)

    def close(self, trade, units, price, reason, done=0.0):
        paid = self.added(done, units, price)
        share = trade.commission * (units / trade.units)
        self.cash += trade.direction * units * price - paid
        profit = trade.direction * units * (price - trade.price) - share - paid
        self.closed.append(
            Closed(trade.symbol, trade.direction * units, trade.bar, self.bar, trade.price, price,
                   share + paid, profit, reason)
        )  # fmt: skip
        trade.commission -= share
        trade.units -= units
        if trade.units == 0:
            self.trades.remove(trade)


def without_dust(units, held, ordered):
    """Return the units to close of a trade: all of it, where next to nothing would be left."""
    units = min(units, held)
    return held if held - units <= DUST * max(held, ordered) else units


def reached_stop(bar, symbol, direction, stop):
    """Return the price at which a stop order is triggered in a bar; None: it is not."""
    if direction > 0 and bar.high[symbol] >= stop:
        return max(bar.open[symbol], stop)
    if direction < 0 and bar.low[symbol] <= stop:
        return min(bar.open[symbol], stop)
    return None


@dataclass
class Desk:
    """What a strategy sees and orders by; see the page's section on writing a strategy."""

    broker: Simulation
    symbol: int = 0

    @property
    def bar(self):
        return self.broker.bar

    @property
    def close(self):
        return self.broker.bars[self.bar].close[self.symbol]

    @property
    def cash(self):
        return self.broker.cash

    @property
    def equity(self):
        return self.broker.equity_at(self.broker.bars[self.bar].close)

    @property
    def position(self):
        return sum(t.direction * t.units for t in self._trades())

    @property
    def trades(self):
        return [{"id": trade.id, "symbol": trade.symbol} for trade in self.broker.trades]

    def sell(self, units=None, **terms):
        return self.order(-1, units, **terms)

    def order(self, direction, units=None, *, fraction=None, for_bars=None, **prices):
        terms = self.broker.terms
        if fraction is not None:
            return self._place(direction, fraction, True, for_bars, **prices)
        if units is not None:
            return self._place(direction, units, False, for_bars, **prices)
        return self._place(direction, terms.size, terms.size_by == "fraction", for_bars, **prices)

    def switch(self, target, **prices):
        self.cancel()
        self.close_position()
        if target != 0:
            terms, direction = self.broker.terms, 1 if target > 0 else -1
            amount = abs(target) * terms.size
            self._place(direction, amount, terms.size_by == "fraction", None, **prices)

    def close_position(self, share=1.0):
        for trade in self._trades():
            units = trade.units * share
            if self.broker.terms.whole_units and share < 1:
                units = max(1, round(units))
            self._place(-trade.direction, units, False, None, closes=trade.id)

    def protect(self, trade_id, **prices):
        for trade in self.broker.trades:
            if trade.id == trade_id:
                for name, price in prices.items():
                    setattr(trade, name, None if math.isnan(price) else price)

    def cancel(self, order_id=None):
        broker = self.broker
        broker.orders = [
            order
            for order in broker.orders
            if (order.id != order_id)
            and (order_id is not None or order.symbol != self.symbol or order.closes is not None)
        ]

    def _trades(self):
        return [trade for trade in self.broker.trades if trade.symbol == self.symbol]

    def _place(self, direction, amount, is_fraction, for_bars, *, limit=None, stop=None,
               stop_loss=None, take_profit=None, closes=None):  # fmt: skip
        broker = self.broker
        last_bar = math.inf if for_bars is None else self.bar + for_bars
        broker.orders.append(
            Order(broker.next_id, self.symbol, direction, amount, is_fraction, limit, stop,
                  stop_loss, take_profit, last_bar, closes)
        )  # fmt: skip
        broker.next_id += 1
        return broker.next_id - 1
