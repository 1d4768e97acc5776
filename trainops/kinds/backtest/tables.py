"""All trades and the equity of every bar of a backtest: the report has only the newest."""

import numpy as np
import pandas as pd

from trainops.kinds.backtest.core.book import REASONS
from trainops.kinds.backtest.job import BacktestJob
from trainops.kinds.backtest.result import result_of
from trainops.text import csv_cell


def trades(job: BacktestJob) -> pd.DataFrame:
    """Return a row for each trade, the oldest first, in the columns of the report's list."""
    rows, prices = result_of(job.broker, job.config, job.step).trades, job.prices
    times = pd.Series(_iso(prices.times))
    table = pd.DataFrame({name: rows[name] for name in rows.dtype.names or ()})
    table["symbol"] = np.array([*map(_text, prices.symbols)])[rows["symbol"]]
    table["reason"] = np.array(REASONS)[rows["reason"]]
    for end in ("exit", "entry"):
        table.insert(0, f"{end}_time", times.iloc[rows[f"{end}_bar"]].to_numpy())
    return table


def equity(job: BacktestJob) -> pd.DataFrame:
    """Return time, equity, drawdown and the close of each symbol at every bar."""
    values, prices = result_of(job.broker, job.config, job.step).equity, job.prices
    closes = prices.bars.close[: job.step]
    names = [f"close_{_line(each)}" for each in prices.symbols]
    names = ["close"] if len(names) == 1 else names
    return pd.DataFrame(
        {
            "time": _iso(prices.times[: job.step]),
            "equity": values,
            "drawdown": 1 - values / np.maximum.accumulate(values),
            **{name: closes[:, number] for number, name in enumerate(names)},
        }
    )


def _text(cell: str) -> str:
    """Return a cell of text, on one line, that no spreadsheet takes for a formula."""
    return _line(csv_cell(cell))


def _line(text: str) -> str:
    """Return the text on one line: a lone CR is not quoted, and ends a row for its readers."""
    return text.replace("\r", " ").replace("\n", " ")


def _iso(times: np.ndarray) -> list[str]:
    """Return e.g. "2013-03-01T00:00:00+00:00" for each."""
    whole = np.datetime_as_string(times.view("M8[us]"), unit="us")
    return [f"{each.removesuffix('.000000')}+00:00" for each in whole.tolist()]
