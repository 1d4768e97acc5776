"""What grows with a backtest: the equity of every bar, and every closed trade."""

import torch

from trainops.engines.backtest.core.book import CLOSED, Rows
from trainops.engines.stream import Stream

EQUITY_COLUMNS = {"equity": (torch.float64, ())}
TRADE_COLUMNS = {
    name: (torch.float64 if CLOSED[name].kind == "f" else torch.int64, ())
    for name in CLOSED.names or ()
}


def equity_stream() -> Stream:
    return Stream(EQUITY_COLUMNS)


def trade_stream() -> Stream:
    return Stream(TRADE_COLUMNS)


def append_trades(stream: Stream, closed: Rows) -> None:
    if len(closed):
        stream.append({name: closed[name] for name in TRADE_COLUMNS})


def is_equity(part: object) -> bool:
    return isinstance(part, Stream) and part.columns == EQUITY_COLUMNS and not part.first_row


def are_trades(part: object) -> bool:
    return isinstance(part, Stream) and part.columns == TRADE_COLUMNS and not part.first_row
