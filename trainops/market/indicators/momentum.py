"""Relative strength index, and moving average convergence/divergence."""

import numpy as np

from trainops.market.bars import Floats
from trainops.market.compiled import compiled
from trainops.market.indicators.averages import NUM_EMA, Ema, ema_step
from trainops.market.indicators.indicator import Indicator, OfOne, bound

RSI_PERIOD, RSI_SEEN, BEFORE, GAIN, LOSS, NUM_RSI = range(6)
LINE, SIGNAL = 3 * NUM_EMA, 3 * NUM_EMA + 1


@compiled
def rsi_step(state: Floats, value: float) -> float:
    """Take a close in; return 100 - 100 / (1 + average gain / average loss), 50 where both are 0.

    Averages as in Wilder, New Concepts in Technical Trading Systems (1978): the mean of the first
    `period` changes, then (average * (period - 1) + change) / period.
    """
    period = state[RSI_PERIOD]
    change = value - state[BEFORE]
    state[BEFORE] = value
    state[RSI_SEEN] += 1
    if state[RSI_SEEN] == 1:
        return np.nan
    gain, loss = max(change, 0.0), max(-change, 0.0)
    if state[RSI_SEEN] <= period + 1:
        state[GAIN] += gain / period
        state[LOSS] += loss / period
        if state[RSI_SEEN] <= period:
            return np.nan
    else:
        state[GAIN] = (state[GAIN] * (period - 1) + gain) / period
        state[LOSS] = (state[LOSS] * (period - 1) + loss) / period
    total = state[GAIN] + state[LOSS]
    return 100 * state[GAIN] / total if total else 50.0


@compiled
def rsi_run(state: Floats, values: Floats) -> Floats:
    indices = np.empty(len(values))
    for i in range(len(values)):
        indices[i] = rsi_step(state, values[i])
    return indices


@compiled
def macd_step(state: Floats, value: float) -> None:
    """Take a close in; the line and its signal stand in the state after."""
    fast, slow = state[:NUM_EMA], state[NUM_EMA : 2 * NUM_EMA]
    state[LINE] = ema_step(fast, value) - ema_step(slow, value)
    state[SIGNAL] = np.nan
    if not np.isnan(state[LINE]):
        state[SIGNAL] = ema_step(state[2 * NUM_EMA : 3 * NUM_EMA], state[LINE])


@compiled
def macd_run(state: Floats, values: Floats) -> Floats:
    found = np.empty((2, len(values)))
    for i in range(len(values)):
        macd_step(state, values[i])
        found[0, i], found[1, i] = state[LINE], state[SIGNAL]
    return found


class Rsi(Indicator):
    """Relative strength index, 0 to 100."""

    def __init__(self, period: int) -> None:
        super().__init__(NUM_RSI)
        self.state[RSI_PERIOD] = period
        self.update: OfOne = bound(rsi_step, self.state, 1)


class Macd(Indicator):
    """A fast EMA minus a slow one (the line), and an EMA of that (the signal)."""

    def __init__(self, fast: int, slow: int, signal: int) -> None:
        super().__init__(3 * NUM_EMA + 2)
        for i, period in enumerate((fast, slow, signal)):
            self.state[i * NUM_EMA : (i + 1) * NUM_EMA] = Ema(period).state
        self._step = bound(macd_step, self.state, 1)

    def update(self, value: float) -> tuple[float, float]:
        self._step(value)
        return float(self.state[LINE]), float(self.state[SIGNAL])


def rsi(values: Floats, period: int) -> Floats:
    """Return the relative strength index, NaN for the first `period` values."""
    return rsi_run(Rsi(period).state, values)


def macd(values: Floats, fast: int, slow: int, signal: int) -> tuple[Floats, Floats]:
    """Return the line and its signal, NaN until there are enough values for each."""
    line, signals = macd_run(Macd(fast, slow, signal).state, values)
    return line, signals
