"""Reading a price series, and finding what is wrong with it before it is used."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trainops.market.alignment import (
    RowNumbers,
    aligned,
    require_rising,
    rows_by_symbol,
)
from trainops.market.bars import Bars, Floats
from trainops.market.columns import PRICES, PriceColumns, find_columns
from trainops.market.refusals import refuse
from trainops.market.times import Times, bar_of_day, iso, to_microseconds
from trainops.runtime.errors import InputError


@dataclass(frozen=True, slots=True)
class Prices:
    """A price series that was found to be whole: times in µs since 1970, prices of each symbol."""

    times: Times
    bars: Bars
    volume: Floats  # (bars, symbols); empty where the table has none
    symbols: tuple[str, ...]
    timezone: str  # in which days begin

    def __len__(self) -> int:
        return len(self.times)

    def highs(self, symbol: int = 0) -> Floats:
        return np.ascontiguousarray(self.bars.high[:, symbol])

    def lows(self, symbol: int = 0) -> Floats:
        return np.ascontiguousarray(self.bars.low[:, symbol])

    def closes(self, symbol: int = 0) -> Floats:
        return np.ascontiguousarray(self.bars.close[:, symbol])


def read_prices(
    path: Path,
    named: PriceColumns,
    *,
    symbol: str,
    timezone: str,
    symbols: Sequence[str] = (),
) -> Prices:
    """Read a price series from a Parquet file; `symbol` is its name where the table has none.

    Of a table with several symbols, `symbols` are read, or all, at the times that all of them have.
    Raises InputError, with row numbers: missing columns or values, times that do not rise, mixed
    time zones, prices that are not above 0, a high below a low.
    """
    with pq.ParquetFile(path) as table:
        schema = table.schema_arrow
        found, problems = find_columns({field.name: _kind(field.type) for field in schema}, named)
        if problems:
            raise InputError(problems)
        if not table.metadata.num_rows:
            raise InputError({"dataset": "has no rows"})

        def column(role: str) -> pa.ChunkedArray:
            """One at a time: what Arrow read of it is let go before the next is read."""
            return table.read(columns=[found[role]])[found[role]]

        times = to_microseconds(found["time"], column("time"))
        columns = {role: _numbers(found[role], column(role)) for role in PRICES}
        for role in PRICES:
            refuse(columns[role] <= 0, f"{found[role]} is not above 0")
        refuse(columns["high"] < columns["low"], f"{found['high']} is below {found['low']}")
        if "volume" in found:
            volume = _numbers(found["volume"], column("volume"), may_be_missing=True)
            columns["volume"] = volume
        rows = rows_by_symbol(column("symbol"), symbols) if "symbol" in found else None
    rows = {symbol: slice(None)} if rows is None else rows
    for each in rows.values():
        require_rising(found["time"], times, each)
    common, rows = aligned(times, rows)
    matrices = {role: _matrix(values, rows.values()) for role, values in columns.items()}
    bars = Bars(*(matrices[role] for role in PRICES))
    volume = matrices.get("volume", np.empty((0, len(rows))))
    return Prices(common, bars, volume, tuple(rows), timezone)


def between(prices: Prices, start: date | None, until: date | None) -> Prices:
    """Return the bars from one day on and before another. Raises InputError where there are none.

    Days begin in the series' time zone.
    """
    first = bar_of_day(prices.times, prices.timezone, start) if start else 0
    end = bar_of_day(prices.times, prices.timezone, until) if until else len(prices)
    if first >= end:
        there_are = f"the bars are from {iso(prices.times[0])} to {iso(prices.times[-1])}"
        field, day = ("start", start) if first == len(prices) else ("until", until)
        raise InputError({field: f"got {day}: no bar is left; {there_are}"})
    return Prices(
        prices.times[first:end],
        Bars(*(each[first:end] for each in prices.bars)),
        prices.volume[first:end],
        prices.symbols,
        prices.timezone,
    )


def _matrix(values: Floats, rows: Iterable[RowNumbers]) -> Floats:
    """Return a column for each symbol; of one symbol without a copy, where that can be."""
    columns = [values[each].reshape(-1, 1) for each in rows]
    whole = columns[0] if len(columns) == 1 else np.hstack(columns)
    return np.require(whole, np.float64, ["C", "W"])


def _numbers(name: str, column: pa.ChunkedArray, *, may_be_missing: bool = False) -> Floats:
    """Return a copy that the core may be given, and that holds nothing of Arrow's."""
    read = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    values: Floats = np.require(read, np.float64, ["C", "W"])
    if not may_be_missing:
        refuse(~np.isfinite(values), f"{name} has no value")
    return values


def _kind(kind: object) -> str:
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return "datetime"
    return "boolean" if pa.types.is_boolean(kind) else "text"
