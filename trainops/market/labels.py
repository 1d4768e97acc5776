"""What a model learns to foretell of a bar, and from which bar on that was known."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainops.market.bars import Floats
from trainops.market.compiled import compiled

UNKNOWN = np.iinfo(np.int64).max


class Labels(NamedTuple):
    """A value for each bar, NaN where it is not known, and the bar at which it became known."""

    values: Floats
    known_at: NDArray[np.int64]


def forward_return(closes: Floats, horizon: int) -> Labels:
    """Return how much the close changes over the next `horizon` bars, relative."""
    num_bars = len(closes)
    values = np.full(num_bars, np.nan)
    known_at = np.full(num_bars, UNKNOWN, dtype=np.int64)
    if num_bars > horizon:
        values[:-horizon] = closes[horizon:] / closes[:-horizon] - 1
        known_at[:-horizon] = np.arange(horizon, num_bars)
    return Labels(values, known_at)


def zigzag(closes: Floats, reversal: float) -> Labels:
    """Return 1 where the leg that follows the bar leads up, -1 where it leads down.

    A leg ends at its furthest close, once the price has come back from there by `reversal` of it;
    only then are its bars' labels known, and those of the last leg never are.
    """
    values = np.full(len(closes), np.nan)
    known_at = np.full(len(closes), UNKNOWN, dtype=np.int64)
    _mark_legs(closes, reversal, values, known_at)
    return Labels(values, known_at)


@compiled
def _mark_legs(
    closes: Floats, reversal: float, values: Floats, known_at: NDArray[np.int64]
) -> None:
    pivot = high_at = low_at = 0
    direction = 0
    for bar in range(len(closes)):
        close = closes[bar]
        if close > closes[high_at]:
            high_at = bar
        if close < closes[low_at]:
            low_at = bar
        if direction >= 0 and close <= closes[high_at] * (1 - reversal):
            values[pivot:high_at] = 1.0
            known_at[pivot:high_at] = bar
            pivot, direction, low_at = high_at, -1, bar
        elif direction <= 0 and close >= closes[low_at] * (1 + reversal):
            values[pivot:low_at] = -1.0
            known_at[pivot:low_at] = bar
            pivot, direction, high_at = low_at, 1, bar
