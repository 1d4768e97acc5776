"""What grows with a backtest: the equity of every bar, and every closed trade."""

import numpy as np
import torch

from trainops.kinds.backtest.core.book import CLOSED, Rows
from trainops.market.bars import Floats
from trainops.runtime.checkpoint.stream import Stream

EQUITY_COLUMNS = {"equity": (torch.float64, ())}
TRADE_COLUMNS = {
    name: (torch.float64 if CLOSED[name].kind == "f" else torch.int64, ())
    for name in CLOSED.names or ()
}


BUFFERED_BARS = 8192


class EquityCurve:
    """The equity of every bar: a stream, and a buffer that spares it most of the appending."""

    def __init__(self, stream: Stream | None = None) -> None:
        self._stream = Stream(EQUITY_COLUMNS) if stream is None else stream.copy()
        self.first_bar = len(self._stream)  # in the buffer
        self.buffer: Floats = np.empty(BUFFERED_BARS)
        self._used = 0

    def make_room(self, end: int) -> None:
        """Provide for the bars to before `end`."""
        if end - self.first_bar > len(self.buffer):
            self._flush()
            if end - self.first_bar > len(self.buffer):
                self.buffer = np.empty(end - self.first_bar)

    def since(self, first: int, end: int) -> Floats:
        """Return the equity of these bars, the newest ones, which are complete now."""
        self._used = end - self.first_bar
        return self.buffer[first - self.first_bar : self._used]

    @property
    def stream(self) -> Stream:
        """Everything that is complete."""
        self._flush()
        return self._stream

    def _flush(self) -> None:
        if self._used:
            self._stream.append({"equity": self.buffer[: self._used]})
            self.first_bar, self._used = self.first_bar + self._used, 0


def trade_stream() -> Stream:
    return Stream(TRADE_COLUMNS)


def append_trades(stream: Stream, closed: Rows) -> None:
    if len(closed):
        stream.append({name: closed[name] for name in TRADE_COLUMNS})


def is_equity(part: object) -> bool:
    return isinstance(part, Stream) and part.columns == EQUITY_COLUMNS and not part.first_row


def are_trades(part: object) -> bool:
    return isinstance(part, Stream) and part.columns == TRADE_COLUMNS and not part.first_row
