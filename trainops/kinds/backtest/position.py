"""Where a checkpoint of a backtest stands. Without torch."""

from collections.abc import Mapping
from typing import Any

from trainops.runtime.position import Position, completed

SUMMARY = (
    "bar_index", "current_date", "cash", "equity", "open_orders", "open_trades", "closed_trades",
)  # fmt: skip
ALSO_READ = ()
BEST = ()


def position(state: Mapping[str, Any], step: int) -> Position:
    bar = state.get("bar_index", step)
    return Position({"bar_index": bar}, completed("bar", bar))
