"""How far prices range: Bollinger bands, Donchian channel, average true range.

Windows are looked through anew at every step: nothing drifts, and they are short.
"""

import math

import numpy as np

from trainops.market.bars import Floats
from trainops.market.compiled import compiled
from trainops.market.indicators.indicator import Indicator, OfThree, bound

# Numbers before a window: how many values it saw, and what came out
COUNT, UPPER, MIDDLE, LOWER, WIDTH, WINDOW = range(6)
ATR_PERIOD, ATR_SEEN, CLOSE_BEFORE, AVERAGE, NUM_ATR = range(5)


@compiled
def bollinger_step(state: Floats, value: float) -> None:
    """Take a close in: mean ± width * standard deviation (of the population) of the window.

    Bollinger, Bollinger on Bollinger Bands (2001).
    """
    window = state[WINDOW:]
    period = len(window)
    window[int(state[COUNT]) % period] = value
    state[COUNT] += 1
    state[UPPER] = state[MIDDLE] = state[LOWER] = np.nan
    if state[COUNT] >= period:
        mean = 0.0
        for i in range(period):
            mean += window[i]
        mean /= period
        squares = 0.0
        for i in range(period):
            squares += (window[i] - mean) ** 2
        distance = state[WIDTH] * math.sqrt(squares / period)
        state[UPPER], state[MIDDLE], state[LOWER] = mean + distance, mean, mean - distance


@compiled
def bollinger_run(state: Floats, values: Floats) -> Floats:
    found = np.empty((3, len(values)))
    for i in range(len(values)):
        bollinger_step(state, values[i])
        found[:, i] = state[UPPER : LOWER + 1]
    return found


@compiled
def donchian_step(state: Floats, high: float, low: float) -> None:
    """Take a bar in; the highest high and lowest low of the last `period` bars stand after."""
    window = state[WINDOW:]
    period = len(window) // 2
    slot = int(state[COUNT]) % period
    window[slot], window[period + slot] = high, low
    state[COUNT] += 1
    state[UPPER] = state[LOWER] = np.nan
    if state[COUNT] >= period:
        state[UPPER], state[LOWER] = window[0], window[period]
        for i in range(1, period):
            state[UPPER] = max(state[UPPER], window[i])
            state[LOWER] = min(state[LOWER], window[period + i])


@compiled
def donchian_run(state: Floats, highs: Floats, lows: Floats) -> Floats:
    found = np.empty((2, len(highs)))
    for i in range(len(highs)):
        donchian_step(state, highs[i], lows[i])
        found[0, i], found[1, i] = state[UPPER], state[LOWER]
    return found


@compiled
def atr_step(state: Floats, high: float, low: float, close: float) -> float:
    """Take a bar in; return the average of max(high, close before) - min(low, close before).

    Wilder, New Concepts in Technical Trading Systems (1978), smoothed as his RSI.
    """
    period, true_range = state[ATR_PERIOD], high - low
    if state[ATR_SEEN]:
        true_range = max(high, state[CLOSE_BEFORE]) - min(low, state[CLOSE_BEFORE])
    state[CLOSE_BEFORE] = close
    state[ATR_SEEN] += 1
    if state[ATR_SEEN] <= period:
        state[AVERAGE] += true_range / period
    else:
        state[AVERAGE] = (state[AVERAGE] * (period - 1) + true_range) / period
    return state[AVERAGE] if state[ATR_SEEN] >= period else np.nan


@compiled
def atr_run(state: Floats, highs: Floats, lows: Floats, closes: Floats) -> Floats:
    averages = np.empty(len(highs))
    for i in range(len(highs)):
        averages[i] = atr_step(state, highs[i], lows[i], closes[i])
    return averages


class Bollinger(Indicator):
    """Bollinger bands: upper, middle, lower."""

    def __init__(self, period: int, width: float) -> None:
        super().__init__(WINDOW + period)
        self.state[WIDTH] = width
        self._step = bound(bollinger_step, self.state, 1)

    def update(self, value: float) -> tuple[float, float, float]:
        self._step(value)
        return float(self.state[UPPER]), float(self.state[MIDDLE]), float(self.state[LOWER])


class Donchian(Indicator):
    """Donchian channel: the highest high and the lowest low."""

    def __init__(self, period: int) -> None:
        super().__init__(WINDOW + 2 * period)
        self.state[UPPER] = self.state[LOWER] = np.nan
        self._step = bound(donchian_step, self.state, 2)

    @property
    def ends(self) -> tuple[float, float]:
        """The upper and lower end; NaN before there are `period` bars."""
        return float(self.state[UPPER]), float(self.state[LOWER])

    def update(self, high: float, low: float) -> tuple[float, float]:
        self._step(high, low)
        return self.ends


class Atr(Indicator):
    """Average true range."""

    def __init__(self, period: int) -> None:
        super().__init__(NUM_ATR)
        self.state[ATR_PERIOD] = period
        self.update: OfThree = bound(atr_step, self.state, 3)


def bollinger(values: Floats, period: int, width: float) -> tuple[Floats, Floats, Floats]:
    """Return upper, middle and lower band, NaN for the first period - 1 values."""
    upper, middle, lower = bollinger_run(Bollinger(period, width).state, values)
    return upper, middle, lower


def donchian(highs: Floats, lows: Floats, period: int) -> tuple[Floats, Floats]:
    """Return the upper and lower end of the channel, NaN for the first period - 1 bars."""
    upper, lower = donchian_run(Donchian(period).state, highs, lows)
    return upper, lower


def atr(highs: Floats, lows: Floats, closes: Floats, period: int) -> Floats:
    """Return the average true range, NaN for the first period - 1 bars."""
    return atr_run(Atr(period).state, highs, lows, closes)
