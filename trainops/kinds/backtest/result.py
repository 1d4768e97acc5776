"""What a backtest came to: the equity of every bar, and all trades, the open ones closed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainops.kinds.backtest.broker import Broker
from trainops.kinds.backtest.config import BacktestConfig
from trainops.kinds.backtest.core.book import AT_OPEN, CLOSED, Rows
from trainops.kinds.backtest.streams import TRADE_COLUMNS
from trainops.market.bars import Floats
from trainops.runtime.checkpoint.stream import Stream


@dataclass(frozen=True, slots=True)
class BacktestResult:
    equity: Floats
    trades: Rows  # of CLOSED
    held_since: Rows  # the entry bars of trades that are still open


def result_of(broker: Broker, config: BacktestConfig, num_bars: int) -> BacktestResult:
    """Return the outcome after N bars; the broker's own books stay as they are."""
    equity: Floats = broker.equity.column("equity").numpy()
    trades, held_since = trades_of(broker.trades), broker.open_trades["entry_bar"].copy()
    if config.finish != "hold" and len(broker.open_trades):
        closed, cash = broker.closings(*_ends(broker, config, num_bars - 1))
        trades = np.concatenate([trades, closed])
        equity[-1], held_since = cash, held_since[:0]
    return BacktestResult(equity, trades, held_since)


def _ends(broker: Broker, config: BacktestConfig, last: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return at which price and bar each open trade is closed by the report.

    That is the last close; under `finish: open` where an order is filled that was given a bar
    earlier, except for trades that were opened later than that.
    """
    trades, bars = broker.open_trades, broker.prices.bars
    symbols = trades["symbol"]
    prices, ends = bars.close[last, symbols], np.full(len(trades), last)
    if config.finish == "open" and config.fill == "next_open":
        was_open = (trades["entry_bar"] < last) | (trades["opened"] == AT_OPEN)
        prices = np.where(was_open, bars.open[last, symbols], prices)
    elif config.finish == "open":
        was_open = trades["entry_bar"] < last
        prices = np.where(was_open, bars.close[last - 1, symbols], prices)
        ends[was_open] -= 1
    return prices, ends


def trades_of(stream: Stream) -> Rows:
    rows = np.zeros(len(stream), dtype=CLOSED)
    for name in TRADE_COLUMNS:
        rows[name] = stream.column(name).numpy()
    return rows
