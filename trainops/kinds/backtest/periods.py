"""Days, months and years of a backtest, as its time zone counts them."""

import math
from typing import Any

import numpy as np

from trainops.market.bars import Floats
from trainops.market.prices import Prices
from trainops.market.times import DAY, local

WEEKEND_SHARE = 2 / 7 * 0.6  # of bars on Saturdays and Sundays: a market that never closes
TRADING_DAYS, ALL_DAYS = 252, 365
DAYS_PER_YEAR = 365.25
USUAL = ((300, math.inf, 1), (28, 31, 12), (6.5, 7.5, 52))  # days between bars -> bars a year


def daily(prices: Prices, equity: Floats) -> Floats:
    """Return the equity at the end of each day that has a bar, after that at the first bar where
    its day has more: else the first day would be in no return.
    """
    last = _last_of(_days(prices))
    ends: Floats = equity[np.append(0, last) if last[0] else last]
    return ends


def periods_per_year(prices: Prices) -> float:
    """Return how many such days a year has: 252, or 365 where weekends trade; 52 weeks, 12 months,
    or as many of another distance between bars as fit.
    """
    days = _days(prices)
    typical = float(np.median(np.diff(np.unique(days)))) if days[-1] > days[0] else 1.0
    for at_least, at_most, per_year in USUAL:
        if at_least <= typical <= at_most:
            return per_year
    if typical > 1:
        return DAYS_PER_YEAR / typical
    weekday = (days + 3) % 7  # 1970-01-01 was a Thursday; Monday is 0
    return ALL_DAYS if (weekday >= 5).mean() > WEEKEND_SHARE else TRADING_DAYS


def returns_by(unit: str, prices: Prices, equity: Floats, cash: float) -> list[dict[str, Any]]:
    """Return the return of each year ("Y") or month ("M") that has a bar."""
    periods = local(prices.times, prices.timezone).view("M8[us]").astype(f"M8[{unit}]")
    last = _last_of(periods)
    ends = equity[last].tolist()
    names = np.datetime_as_string(periods[last]).tolist()
    return [
        {"period": name, "return": end / begin - 1 if begin > 0 else None}
        for name, begin, end in zip(names, [cash, *ends[:-1]], ends, strict=True)
    ]


def _days(prices: Prices) -> Any:
    return local(prices.times, prices.timezone) // DAY


def _last_of(groups: Any) -> Any:
    """Return the index of the last element of each run of equal ones."""
    return np.append(np.flatnonzero(groups[1:] != groups[:-1]), len(groups) - 1)
