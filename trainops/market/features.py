"""Features of bars: indicators, standardised, and how far each is low, middle or high.

What is measured (means, deviations, quantiles) is measured on the bars that a model learns from,
and kept with it.
"""

from collections.abc import Iterator, Mapping
from typing import TypedDict

import numpy as np

from trainops.market.bars import Bars, Floats
from trainops.market.indicators.averages import sma
from trainops.market.indicators.momentum import macd, rsi
from trainops.market.indicators.ranges import atr, bollinger, donchian
from trainops.market.pipeline import FeatureParameters

MACD = (12, 26, 9)
BAND_WIDTH = 2.0
QUANTILES = (0.1, 0.5, 0.9)  # where a feature is fully low, middle and high
FURTHEST = 8.0  # deviations from the mean; beyond, nothing was learned


def features_of(bars: Bars, symbol: int, parameters: FeatureParameters) -> dict[str, Floats]:
    """Return each feature by name, a value for each bar; NaN where too few bars lie before."""
    one = Bars(*(np.ascontiguousarray(prices[:, symbol]) for prices in bars))
    return dict(_features(one, parameters))


class Scale(TypedDict):
    """What is measured of the features of training bars, as plain values: one entry a feature."""

    names: list[str]
    mean: list[float]
    deviation: list[float]
    centres: list[list[float]]


def measured(columns: Mapping[str, Floats]) -> Scale:
    """Return what `prepared` needs, as plain values, from the features of training bars."""
    matrix = np.stack(list(columns.values()), axis=1)
    deviation = matrix.std(axis=0)
    return {
        "names": list(columns),
        "mean": matrix.mean(axis=0).tolist(),
        "deviation": np.where(deviation > 0, deviation, 1.0).tolist(),
        "centres": np.quantile(matrix, QUANTILES, axis=0).T.tolist(),
    }


def prepared(columns: Mapping[str, Floats], scale: Scale, fuzzy: str) -> Floats:
    """Return what a network is given: (bars, inputs), NaN where a feature is."""
    if list(columns) != scale["names"]:
        raise ValueError(f"features {list(columns)} where {scale['names']} were measured")
    inputs = []
    for i, values in enumerate(columns.values()):
        if fuzzy != "instead":
            standard = (values - scale["mean"][i]) / scale["deviation"][i]
            inputs.append(np.clip(standard, -FURTHEST, FURTHEST))
        if fuzzy != "off":
            inputs += memberships(values, scale["centres"][i])
    return np.stack(inputs, axis=1)


def memberships(values: Floats, centres: list[float]) -> tuple[Floats, Floats, Floats]:
    """Return how far each value is low, middle and high: triangles that add up to 1 everywhere.

    Ruspini, A new approach to clustering, Information and Control 15 (1969).
    """
    low_at, middle_at, high_at = centres
    low = _ramp(middle_at - values, middle_at - low_at)
    high = _ramp(values - middle_at, high_at - middle_at)
    return low, 1.0 - low - high, high


def _ramp(distance: Floats, whole: float) -> Floats:
    """Return 0 below none of the distance, 1 from the whole of it on."""
    if whole <= 0:
        return np.where(np.isnan(distance), np.nan, (distance > 0).astype(float))
    return np.clip(distance, 0.0, whole) / whole


def _features(bars: Bars, wanted: FeatureParameters) -> Iterator[tuple[str, Floats]]:
    high, low, close = bars.high, bars.low, bars.close
    for period in wanted.returns:
        changes = np.full(len(close), np.nan)
        changes[period:] = close[period:] / close[:-period] - 1
        yield f"return_{period}", changes
    for period in wanted.averages:
        yield f"average_{period}", close / sma(close, period) - 1
    for period in wanted.rsi:
        yield f"rsi_{period}", rsi(close, period) / 50 - 1
    for period in wanted.bollinger:
        upper, middle, _ = bollinger(close, period, BAND_WIDTH)
        yield f"bollinger_{period}", _share(close - middle, upper - middle)
    for period in wanted.donchian:
        upper, lower = donchian(high, low, period)
        yield f"donchian_{period}", _share(2 * close - lower - upper, upper - lower)
    for period in wanted.atr:
        yield f"atr_{period}", atr(high, low, close, period) / close
    if wanted.macd:
        line, signal = macd(close, *MACD)
        yield "macd", line / close
        yield "macd_histogram", (line - signal) / close


def _share(part: Floats, whole: Floats) -> Floats:
    """Return part / whole; 0 where there is no whole, as in a price that did not move."""
    return np.where(whole == 0, 0.0, part / np.where(whole == 0, 1.0, whole))
