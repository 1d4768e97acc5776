"""Where a backtest stands: the part of its state that people read. It follows from the others."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainops.kinds.backtest.broker import Broker
from trainops.kinds.backtest.fingerprint import Fingerprint
from trainops.market.bars import Floats
from trainops.market.times import iso
from trainops.runtime import lossless
from trainops.runtime.checkpoint.stream import Stream
from trainops.runtime.errors import IncompatibleState


@dataclass(frozen=True, slots=True)
class AccountEquity:
    """The equity at the last bar, and the highest so far."""

    equity: float
    peak: float

    def after(self, equity: Floats) -> "AccountEquity":
        """Return the equity after these further bars."""
        return AccountEquity(float(equity[-1]), max(self.peak, float(equity.max())))

    def metrics(self) -> dict[str, float]:
        return {"equity": self.equity, "drawdown": 1 - self.equity / self.peak}


def equity_of(equity: Stream, cash: float) -> AccountEquity:
    """Return the equity after these bars of an account that began with `cash`."""
    begin = AccountEquity(cash, cash)
    return begin.after(equity.column("equity").numpy()) if len(equity) else begin


def summary_of(
    broker: Broker, account: AccountEquity, monitor: str, fingerprint: Fingerprint
) -> dict[str, Any]:
    bar, prices = broker.next_bar, broker.prices
    return {
        "bar_index": bar,
        "current_date": iso(int(prices.times[bar - 1])) if bar else None,
        "last_close": prices.bars.close[bar - 1].tolist() if bar else None,
        "bars_digest": fingerprint.before(bar),
        "cash": float(broker.account["cash"]),
        "equity": account.equity,
        "peak_equity": account.peak,
        "positions": broker.positions(),
        "open_orders": len(broker.open_orders),
        "open_trades": len(broker.open_trades),
        "closed_trades": len(broker.trades),
        "metric": account.metrics()[monitor],
    }


def require_summary(saved: Any, expected: Mapping[str, Any]) -> None:
    """Raise IncompatibleState unless a saved summary is the one that the other parts give.

    It has the digest of the bars, so a state of other prices is refused here.
    """
    if not isinstance(saved, Mapping):
        raise IncompatibleState(f"the state is {saved!r}")
    for name, value in expected.items():
        if name not in saved or lossless.dumps(saved[name]) != lossless.dumps(value):
            raise IncompatibleState(
                f"{name} is {saved.get(name)!r}, but by the rest of the state and the prices "
                f"{value!r}"
            )
