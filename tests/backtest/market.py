"""Price series and backtests for the tests."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from trainops.kind import KINDS

DATASET = "ds_0123456789abcdef"
BACKTEST = KINDS["backtest"]
DAY = pd.Timedelta(days=1)


def walk(num_bars, *, seed=0, volatility=0.02):
    """Return a table of bars whose closes walk at random; opens have gaps."""
    rng = np.random.default_rng(seed)
    close = 100 * np.exp(np.cumsum(rng.normal(0, volatility, num_bars)))
    open_ = np.roll(close, 1) * np.exp(rng.normal(0, volatility / 2, num_bars))
    open_[0] = 100.0
    return table_of(
        open_,
        np.maximum(open_, close) * np.exp(np.abs(rng.normal(0, volatility / 2, num_bars))),
        np.minimum(open_, close) * np.exp(-np.abs(rng.normal(0, volatility / 2, num_bars))),
        close,
    )


def table_of(open_, high, low, close):
    times = pd.date_range("2020-01-01", periods=len(close), freq="h")
    return pa.table(
        {
            "time": pa.array(times.as_unit("us"), pa.timestamp("us")),
            "open": np.asarray(open_, float),
            "high": np.asarray(high, float),
            "low": np.asarray(low, float),
            "close": np.asarray(close, float),
        }
    )


def bars_of(*rows):
    """Return a table of bars given as (open, high, low, close)."""
    return table_of(*np.array(rows, dtype=float).T)


def write(table, root):
    path = Path(root) / "prices.parquet"
    pq.write_table(table, path)
    return {DATASET: path}


def make_job(table, root, **config):
    config = {"dataset": DATASET, "commission": {}, **config}
    return BACKTEST.make_job(BACKTEST.parse_config(config), write(table, root))


def run(table, root, **config):
    return run_through(make_job(table, root, **config))


def run_through(job):
    while job.step < job.total_steps:
        job.advance()
    return job


def shipped_prices(name):
    """Return the series that backtesting.py ships, without importing it."""
    folder = Path(find_spec("backtesting").submodule_search_locations[0]) / "test"
    frame = pd.read_csv(folder / f"{name}.csv", index_col=0, parse_dates=True)
    return pa.Table.from_pandas(frame.rename_axis("time").reset_index(), preserve_index=False)
