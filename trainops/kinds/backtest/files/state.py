"""Whether the parts of a checkpoint of a backtest tell of one run."""

from collections.abc import Iterator, Mapping
from typing import Any

from trainops.files.description import StateChecks
from trainops.kinds.backtest.frozen_book import MAY_BE_NAN
from trainops.kinds.backtest.streams import are_trades, is_equity
from trainops.runtime.job import StateDict

PARTS = ("broker", "strategy", "equity", "trades")


def backtest_disagreements(step: int, state: StateDict) -> dict[str, str]:
    """Return what does not fit the rest of a backtest's checkpoint of this step, by place.

    That the bars are those of the data is seen only by a job that has the data.
    """
    if missing := [name for name in PARTS if name not in state]:
        return dict.fromkeys(missing, "is missing")
    if not (is_equity(state["equity"]) and are_trades(state["trades"])):
        return {"equity, trades": "are not the streams of a backtest"}
    return {
        place: f"is {found}; by the rest of the checkpoint {expected}"
        for place, found, expected in _claims(step, state)
        if found != expected
    }


def numbers_of(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts without what may be NaN: prices that are not set, a strategy's memory."""
    numbers = {name: part for name, part in parts.items() if name != "strategy"}
    broker = numbers.get("broker")
    if isinstance(broker, Mapping):
        numbers["broker"] = {name: _always_set(table) for name, table in broker.items()}
    return numbers


def _always_set(table: Any) -> Any:
    if not isinstance(table, Mapping):
        return table
    return {name: column for name, column in table.items() if name not in MAY_BE_NAN}


def _claims(step: int, state: StateDict) -> Iterator[tuple[str, Any, Any]]:
    """Yield a place, what it says, and what it should say."""
    plain: Mapping[str, Any] = state["state"]
    account, equity = state["broker"]["account"], state["equity"].column("equity")
    orders, trades = state["broker"]["orders"], state["broker"]["trades"]
    yield "state.bar_index", plain["bar_index"], step
    yield "equity", len(equity), step
    yield "state.cash", plain["cash"], account["cash"]
    yield "state.closed_trades", plain["closed_trades"], len(state["trades"])
    yield "state.open_trades", plain["open_trades"], len(trades["id"])
    for name, table in (("orders", orders), ("trades", trades)):
        lengths = {len(column) for column in table.values()}
        yield f"broker.{name}", lengths, {account[f"num_{name}"]}
    yield "state.open_orders", plain["open_orders"], len(orders["id"])
    yield "strategy", set(state["strategy"]), {"identity", "remembered"}
    if len(equity):
        yield "state.equity", plain["equity"], float(equity[-1])
        highest = float(equity.max())  # or the cash of the beginning, which only the config tells
        yield "state.peak_equity", plain["peak_equity"], max(plain["peak_equity"], highest)
    for name, bar in (("trades", trades["entry_bar"]), ("orders", orders["placed_bar"])):
        yield f"broker.{name}", bool((bar >= step).any()), False


CHECKS = StateChecks(
    mark="bar_index",
    numbers=numbers_of,
    disagreements=backtest_disagreements,
    compared="bars, cash, equity and its peak, and the numbers of orders and trades",
)
