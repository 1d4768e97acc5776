"""Coarser bars from finer ones."""

import numpy as np

from trainops.market.bars import Bars, Floats
from trainops.market.prices import Prices
from trainops.market.times import DAY, local

MINUTE = 60_000_000
INTERVALS = {
    "1min": MINUTE,
    "5min": 5 * MINUTE,
    "15min": 15 * MINUTE,
    "30min": 30 * MINUTE,
    "1h": 60 * MINUTE,
    "4h": 240 * MINUTE,
    "1d": DAY,
    "1w": 7 * DAY,
}
MONDAY = 4 * DAY  # the first one after 1970-01-01, a Thursday


def resample(prices: Prices, interval: str) -> Prices:
    """Return a bar for each interval that has any: first open, highest, lowest, last close.

    Intervals begin at full multiples of the wall clock in the series' time zone, weeks on Monday.
    A bar carries the time of the first one in it; the last may be incomplete.
    """
    length = INTERVALS[interval]
    origin = MONDAY if interval == "1w" else 0
    slot = (local(prices.times, prices.timezone) - origin) // length
    first = np.flatnonzero(np.diff(slot, prepend=slot[0] - 1))
    last = np.append(first[1:], len(slot)) - 1
    bars = Bars(
        prices.bars.open[first],
        np.maximum.reduceat(prices.bars.high, first),
        np.minimum.reduceat(prices.bars.low, first),
        prices.bars.close[last],
    )
    volume: Floats = prices.volume
    if len(volume):
        volume = np.add.reduceat(volume, first)
    return Prices(prices.times[first], bars, volume, prices.symbols, prices.timezone)
