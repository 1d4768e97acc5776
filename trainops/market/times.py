"""Times of bars: microseconds since 1970 in UTC, from whatever a table holds."""

import re
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trainops.market.refusals import refuse
from trainops.runtime.errors import InputError

Times = NDArray[np.int64]

ZONE = re.compile(r"(Z|[+-]\d{2}:?\d{2}|[+-]\d{2}|UTC|GMT)$")
DAY = 86_400_000_000
# A whole number is seconds, milliseconds, microseconds or nanoseconds since 1970 by its size:
# each reaches from 1973 to 5138 without overlapping the next.
EPOCHS = ((10**11, 10**6, 1), (10**14, 10**3, 1), (10**17, 1, 1), (2**63, 1, 10**3))


def to_microseconds(name: str, column: pa.ChunkedArray) -> Times:
    """Return the times. Raises InputError, with row numbers: missing, unreadable, mixed zones."""
    refuse(pc.is_null(column).to_numpy(), f"{name} has no time")
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_integer(kind):
        return _from_epoch(column.to_numpy())
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        whole = column.cast(pa.timestamp("us", tz=getattr(kind, "tz", None)), safe=False)
        times: Times = whole.cast(pa.int64()).to_numpy()
        return times
    return _from_text(name, column.to_pylist())


def _from_epoch(values: NDArray[Any]) -> Times:
    largest = int(np.abs(values).max())
    for limit, factor, divisor in EPOCHS:
        if largest < limit:
            return values.astype(np.int64) * factor // divisor
    raise InputError({"dataset": f"{largest} is not a time"})


def _from_text(name: str, values: list[str]) -> Times:
    """Text means that the upload could not read them all as one kind of date: say which not."""
    zones = np.array([bool(ZONE.search(each.strip())) and ":" in each for each in values])
    if zones.any() and not zones.all():
        fewer = zones if 2 * zones.sum() <= len(zones) else ~zones
        what = "with" if fewer is zones else "without"
        refuse(fewer, f"{name} mixes time zones: a time {what} one")
    parsed = pd.to_datetime(pd.Series(values), utc=True, errors="coerce", format="ISO8601")
    refuse(parsed.isna().to_numpy(), f"{name} has no readable date")
    naive = parsed.dt.tz_localize(None).to_numpy(dtype="M8[us]")
    return naive.astype(np.int64)


def iso(time: int) -> str:
    """Return e.g. "2013-03-01T00:00:00+00:00"."""
    return datetime.fromtimestamp(time / 1e6, UTC).isoformat()


def local(times: Times, timezone: str) -> Times:
    """Return the wall clock's microseconds in a time zone."""
    if timezone == "UTC":
        return times
    zoned = pd.DatetimeIndex(times.view("M8[us]"), tz="UTC").tz_convert(timezone)
    return zoned.tz_localize(None).as_unit("us").asi8


def bar_of_day(times: Times, timezone: str, day: date) -> int:
    """Return the number of the first bar on or after a day, which begins in a time zone."""
    midnight = np.datetime64(day, "us").astype(np.int64)
    return int(np.searchsorted(local(times, timezone), midnight))
