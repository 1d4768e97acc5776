"""What a backtest came to: the equity of every bar, and all trades, the open ones closed."""

from dataclasses import dataclass

import numpy as np

from trainops.engines.backtest.broker import Broker
from trainops.engines.backtest.config import BacktestConfig
from trainops.engines.backtest.core.book import CLOSED, Rows
from trainops.engines.backtest.streams import TRADE_COLUMNS
from trainops.engines.market.bars import Floats
from trainops.engines.stream import Stream


@dataclass(frozen=True, slots=True)
class Outcome:
    equity: Floats
    trades: Rows  # of CLOSED
    held_since: Rows  # the entry bars of trades that are still open


def outcome_of(broker: Broker, config: BacktestConfig, num_bars: int) -> Outcome:
    """Return the outcome after so many bars; the broker's own books stay as they are."""
    equity: Floats = broker.equity.column("equity").numpy()
    trades, held_since = trades_of(broker.trades), broker.open_trades["entry_bar"].copy()
    if config.finish != "hold" and len(broker.open_trades):
        prices, bar = broker.prices.bars.close[num_bars - 1], num_bars - 1
        if config.finish == "open" and config.fill == "next_open":
            prices = broker.prices.bars.open[bar]
        elif config.finish == "open" and bar > 0:
            prices, bar = broker.prices.bars.close[bar - 1], bar - 1
        closed, cash = broker.closings(prices, bar)
        trades = np.concatenate([trades, closed])
        equity[-1], held_since = cash, held_since[:0]
    return Outcome(equity, trades, held_since)


def trades_of(stream: Stream) -> Rows:
    rows = np.zeros(len(stream), dtype=CLOSED)
    for name in TRADE_COLUMNS:
        rows[name] = stream.column(name).numpy()
    return rows
