"""Streaming, over a series, and against references: the same values."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backtest.market import shipped_prices
from tests.thinning import quick_some
from trainops.market.indicators.averages import Ema, Sma, ema, sma
from trainops.market.indicators.momentum import Macd, Rsi, macd, rsi
from trainops.market.indicators.ranges import (
    Atr,
    Bollinger,
    Donchian,
    atr,
    bollinger,
    donchian,
)

PERIOD = 14
RNG = np.random.default_rng(3)
CLOSE = 100 * np.exp(np.cumsum(RNG.normal(0, 0.02, 3000)))
CLOSE[500:540] = CLOSE[500]  # a market that stands still
HIGH = CLOSE * (1 + RNG.random(3000) / 50)
LOW = CLOSE * (1 - RNG.random(3000) / 50)
SERIES = pd.Series(CLOSE)


def wilder(values, period):
    """Return the mean of the first `period` values, then Wilder's smoothing; NaN before."""
    averages = [np.nan] * (period - 1) + [float(np.mean(values[:period]))]
    for value in values[period:]:
        averages.append((averages[-1] * (period - 1) + value) / period)
    return np.array(averages)


def rsi_of(close, period):
    changes = np.diff(close)
    gain, loss = (wilder(np.maximum(sign * changes, 0), period) for sign in (1, -1))
    return np.append(np.nan, 100 - 100 / (1 + gain / loss))


def true_ranges(high, low, close):
    before = np.append(np.nan, close[:-1])
    return np.nanmax([high - low, abs(high - before), abs(low - before)], axis=0)


def ewm(values, period):
    return values.ewm(span=period, adjust=False, min_periods=period).mean()


LINE = ewm(SERIES, 12) - ewm(SERIES, 26)
LINE[:25] = np.nan
SIGNAL = LINE.copy()
SIGNAL[25:] = ewm(LINE[25:], 9)
MIDDLE, DEVIATION = SERIES.rolling(PERIOD).mean(), SERIES.rolling(PERIOD).std(ddof=0)
BARS = (HIGH, LOW, CLOSE)
CASES = {  # name -> over a series, a streaming one, its inputs, the reference's outputs
    "sma": (lambda *x: sma(*x, PERIOD), Sma(PERIOD), (CLOSE,), [MIDDLE]),
    "ema": (lambda *x: ema(*x, PERIOD), Ema(PERIOD), (CLOSE,), [ewm(SERIES, PERIOD)]),
    "rsi": (lambda *x: rsi(*x, PERIOD), Rsi(PERIOD), (CLOSE,), [rsi_of(CLOSE, PERIOD)]),
    "macd": (lambda *x: macd(*x, 12, 26, 9), Macd(12, 26, 9), (CLOSE,), [LINE, SIGNAL]),
    "atr": (lambda *x: atr(*x, PERIOD), Atr(PERIOD), BARS,
            [wilder(true_ranges(*BARS), PERIOD)]),
    "bollinger": (lambda *x: bollinger(*x, PERIOD, 2.0), Bollinger(PERIOD, 2.0), (CLOSE,),
                  [MIDDLE + 2 * DEVIATION, MIDDLE, MIDDLE - 2 * DEVIATION]),
    "donchian": (lambda *x: donchian(*x, PERIOD), Donchian(PERIOD), (HIGH, LOW),
                 [pd.Series(HIGH).rolling(PERIOD).max(), pd.Series(LOW).rolling(PERIOD).min()]),
}  # fmt: skip


def columns(found):
    return np.atleast_2d(np.array(found))


@pytest.mark.parametrize("name", CASES)
def test_an_indicator_is_what_its_reference_is(name):
    over_series, _, inputs, expected = CASES[name]
    found = columns(over_series(*inputs))
    assert np.isnan(found).sum() > 0
    # The differences of MACD are small beside the prices they come from.
    scale = 1e-12 * CLOSE.max() if name == "macd" else 0
    np.testing.assert_allclose(found, columns(expected), rtol=1e-12, atol=scale)


# How many bars it takes until a library that begins its smoothing otherwise has forgotten that.
FORGOTTEN = {("TA-Lib", "ema"): 250, ("TA-Lib", "macd"): 450, ("TA-Lib", "atr"): 450}
REFERENCES = json.loads((Path(__file__).parent / "references" / "indicators.json").read_text())
LIBRARIES = [(library, name) for library in ("TA-Lib", "ta") for name in REFERENCES[library]]


@pytest.mark.parametrize(("library", "name"), quick_some(LIBRARIES, every=4))
def test_an_indicator_is_what_other_libraries_say(library, name):
    """TA-Lib 0.8 and ta 0.11, recorded. What a library does not have is not in its record."""
    prices = shipped_prices("GOOG").to_pandas()
    high, low, close = (prices[each].to_numpy(float) for each in ("High", "Low", "Close"))
    given = {"atr": (high, low, close), "donchian": (high, low)}.get(name, (close,))
    bars = np.array(REFERENCES["bars"])
    late = bars >= FORGOTTEN.get((library, name), 0)
    assert late.sum() > 15
    found = columns(CASES[name][0](*map(np.ascontiguousarray, given)))[:, bars[late]]
    expected = np.array(REFERENCES[library][name], dtype=float)[:, late]
    scale = 1e-12 * close.max() if name == "macd" else 0
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=scale)


@pytest.mark.parametrize("name", CASES)
def test_a_streaming_indicator_gives_the_same_bits(name):
    over_series, streaming, inputs, _ = CASES[name]
    size = streaming.state.size
    streamed = [streaming.update(*values) for values in zip(*inputs, strict=True)]
    expected = columns(over_series(*inputs))
    np.testing.assert_array_equal(np.array(streamed).reshape(len(CLOSE), -1).T, expected)
    assert streaming.state.size == size, "the state grew"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=80),
    st.integers(1, 20),
)
def test_a_mean_is_exact_to_the_last_digits_whatever_came_before(values, period):
    found = sma(np.array([1e9, 1e-9, *values]), period)[2:]
    everything = [1e9, 1e-9, *values]
    for i, mean in enumerate(found, start=2):
        window = everything[max(0, i - period + 1) : i + 1]
        if len(window) == period:
            assert mean == pytest.approx(np.mean(window), rel=1e-9, abs=1e-6)


def test_a_long_series_does_not_drift():
    values = np.tile([1e6, 1e-3, 7.0], 300_000)
    np.testing.assert_allclose(sma(values, 3)[-3:], np.mean([1e6, 1e-3, 7.0]), rtol=1e-12)


def test_an_index_of_a_market_that_stands_still_is_in_the_middle():
    assert rsi(np.full(30, 5.0), 3)[-1] == 50.0
    assert rsi(np.arange(1.0, 30.0), 3)[-1] == 100.0
    assert rsi(np.arange(30.0, 1.0, -1), 3)[-1] == 0.0
