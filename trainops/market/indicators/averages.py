"""Moving averages: simple and exponential.

Every indicator is one compiled step on an array of numbers, its whole state. Over a series the
steps are taken one after the other, so both forms give the same bits.
"""

import numpy as np

from trainops.market.bars import Floats
from trainops.market.compiled import compiled
from trainops.market.indicators.indicator import Indicator, OfOne, bound

# The simple average's numbers, then its window
COUNT, SLOT, SUM, LOST_ADDING, LOST_REMOVING, NEWEST, EQUAL, WINDOW = range(8)
# The exponential one's
FACTOR, PERIOD, SEEN, AVERAGE, NUM_EMA = range(5)


@compiled
def sma_step(state: Floats, value: float) -> float:
    """Add a value; return the mean of the last `period`, NaN before there are `period`.

    Sums are compensated (Kahan, CACM 8, 1965) in the way of pandas' rolling mean.
    """
    period = len(state) - WINDOW
    slot = WINDOW + int(state[SLOT])
    if state[COUNT] >= period:
        added = -state[slot] - state[LOST_REMOVING]
        total = state[SUM] + added
        state[LOST_REMOVING] = total - state[SUM] - added
        state[SUM] = total
    added = value - state[LOST_ADDING]
    total = state[SUM] + added
    state[LOST_ADDING] = total - state[SUM] - added
    state[SUM] = total
    state[EQUAL] = state[EQUAL] + 1 if state[COUNT] and value == state[NEWEST] else 1
    state[NEWEST] = value
    state[slot] = value
    state[SLOT] = state[SLOT] + 1 if state[SLOT] + 1 < period else 0
    state[COUNT] += 1
    if state[COUNT] < period:
        return np.nan
    return value if state[EQUAL] >= period else state[SUM] / period


@compiled
def sma_run(state: Floats, values: Floats) -> Floats:
    averages = np.empty(len(values))
    for i in range(len(values)):
        averages[i] = sma_step(state, values[i])
    return averages


@compiled
def ema_step(state: Floats, value: float) -> float:
    """Take a value in: average += 2 / (period + 1) * (value - average), begun at the first."""
    if state[SEEN] == 0:
        state[AVERAGE] = value
    else:
        state[AVERAGE] = state[FACTOR] * value + (1 - state[FACTOR]) * state[AVERAGE]
    state[SEEN] += 1
    return state[AVERAGE] if state[SEEN] >= state[PERIOD] else np.nan


@compiled
def ema_run(state: Floats, values: Floats) -> Floats:
    averages = np.empty(len(values))
    for i in range(len(values)):
        averages[i] = ema_step(state, values[i])
    return averages


class Sma(Indicator):
    """Simple moving average."""

    def __init__(self, period: int) -> None:
        super().__init__(WINDOW + period)
        self.update: OfOne = bound(sma_step, self.state, 1)


class Ema(Indicator):
    """Exponential moving average."""

    def __init__(self, period: int) -> None:
        super().__init__(NUM_EMA)
        self.state[FACTOR], self.state[PERIOD] = 2 / (period + 1), period
        self.update: OfOne = bound(ema_step, self.state, 1)


def sma(values: Floats, period: int) -> Floats:
    """Return the simple moving average of a series, NaN for its first period - 1 values."""
    return sma_run(Sma(period).state, values)


def ema(values: Floats, period: int) -> Floats:
    """Return the exponential moving average of a series, NaN for its first period - 1 values."""
    return ema_run(Ema(period).state, values)
