"""A broker's book as parts of a checkpoint, and back."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trainops.kinds.backtest.core.book import ACCOUNT, ORDER, TRADE, Book, Rows
from trainops.runtime.errors import IncompatibleState

TABLES = {"orders": ORDER, "trades": TRADE}
MAY_BE_NAN = {"limit", "stop", "stop_loss", "take_profit"}
COUNTED = {"orders": "num_orders", "trades": "num_trades"}
NOT_SAVED = "num_closed"  # closed trades have been collected into their stream


def freeze_book(book: Book) -> dict[str, Any]:
    """Return the rows that count, column by column."""
    account = {name: book.account[name][0].item() for name in ACCOUNT.names or ()}
    del account[NOT_SAVED]
    tables = {}
    for table, dtype in TABLES.items():
        used = getattr(book, table)[: account[COUNTED[table]]]
        tables[table] = {name: torch.from_numpy(used[name].copy()) for name in dtype.names or ()}
    return {"account": account, **tables}


def thaw_book(part: Any, num_symbols: int, bar: int) -> tuple[Rows, Rows, Rows]:
    """Return account, orders and trades of a frozen book. Raises IncompatibleState."""
    try:
        orders, trades = (_thaw_table(part[table], dtype) for table, dtype in TABLES.items())
        account = _thaw_account(part["account"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise IncompatibleState(f"the book cannot be read: {error!r}") from error
    if account["num_orders"][0] != len(orders) or account["num_trades"][0] != len(trades):
        raise IncompatibleState("the account's counts of orders or trades differ from the book")
    for name, rows in (("order", orders), ("trade", trades)):
        if not ((rows["symbol"] >= 0) & (rows["symbol"] < num_symbols)).all():
            raise IncompatibleState(f"an {name} has an unknown symbol")
    if (trades["entry_bar"] >= bar).any() or (orders["placed_bar"] >= bar).any():
        raise IncompatibleState(f"the book is of later bars than {bar}")
    return account, orders, trades


def _thaw_account(saved: Mapping[str, Any]) -> Rows:
    names = set(ACCOUNT.names or ()) - {NOT_SAVED}
    if saved.keys() != names:
        raise ValueError(f"account has {sorted(saved)}")
    account = np.zeros(1, dtype=ACCOUNT)
    for name, value in saved.items():
        if type(value) is not (float if ACCOUNT[name].kind == "f" else int) or not np.isfinite(
            value
        ):
            raise ValueError(f"account.{name} is {value!r}")
        account[name] = value
    return account


def _thaw_table(saved: Mapping[str, Any], dtype: np.dtype[Any]) -> Rows:
    names = dtype.names or ()
    if set(saved) != set(names):
        raise ValueError(f"columns {sorted(saved)}")
    columns = {name: _thaw_column(name, saved[name], dtype[name]) for name in names}
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1:
        raise ValueError(f"columns of different lengths: {sorted(lengths)}")
    rows = np.zeros(lengths.pop(), dtype=dtype)
    for name, column in columns.items():
        rows[name] = column
    return rows


def _thaw_column(name: str, column: torch.Tensor, dtype: np.dtype[Any]) -> NDArray[Any]:
    values: NDArray[Any] = column.numpy()
    if values.dtype != dtype or values.ndim != 1:
        raise ValueError(f"column {name} is {values.dtype} {values.shape}")
    if name not in MAY_BE_NAN and not np.isfinite(values).all():
        raise ValueError(f"column {name} is not finite")
    return values
