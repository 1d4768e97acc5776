"""How much privacy noise buys: Rényi differential privacy of the subsampled Gaussian mechanism.

Sources: Mironov, "Rényi differential privacy" (2017), for composition; Mironov, Talwar and Zhang,
"Rényi differential privacy of the sampled Gaussian mechanism" (2019), sections 3.2 and 3.3, for one
step; Balle, Barthe, Gaboardi, Hsu and Sato, "Hypothesis testing interpretations and Rényi
differential privacy" (2020), theorem 21, for epsilon. Neighbours differ by one member, added or
taken away; each takes part in a step by itself, with the sample rate as its chance.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats: TypeAlias = NDArray[np.float64]
Setting: TypeAlias = tuple[float, float]  # noise multiplier, sample rate
Spent: TypeAlias = Mapping[Setting, int]  # steps of each setting

ORDERS: Floats = np.array([1 + x / 10 for x in range(1, 100)] + list(range(12, 64)), np.float64)
LEAST_NOISE = 1e-50  # less is none; far above where squares become 0 and series do not end
NEGLIGIBLE = -30.0  # the logarithm below which a term of a series changes nothing any more
TERMS = 64  # of a series, looked at in one go


@lru_cache(maxsize=4096)
def divergence(noise_multiplier: float, sample_rate: float) -> Floats:
    """Return the Rényi divergence of one step, for each of ORDERS."""
    if sample_rate == 0:
        return np.zeros(len(ORDERS))
    if noise_multiplier < LEAST_NOISE:
        return np.full(len(ORDERS), np.inf)
    if sample_rate == 1:
        return ORDERS / (2 * noise_multiplier**2)
    return np.array(
        [_log_moment(noise_multiplier, sample_rate, order) / (order - 1) for order in ORDERS]
    )


def epsilon(spent: Spent, delta: float) -> float:
    """Return the epsilon of all these steps together, at `delta`; 0 where there are none."""
    used = {setting: steps for setting, steps in spent.items() if steps and setting[1]}
    if not used:
        return 0.0
    total = sum(steps * divergence(*setting) for setting, steps in sorted(used.items()))
    return _converted(np.asarray(total), delta)


class Figure(NamedTuple):
    """An upper bound of an epsilon, and the name of the accountant that gave it: rdp or prv."""

    epsilon: float
    accountant: str


def measured(spent: Spent, delta: float) -> Figure:
    """Return the epsilon of all these steps together, by Rényi divergences."""
    return Figure(epsilon(spent, delta), "rdp")


def _converted(divergences: Floats, delta: float) -> float:
    """Return the smallest epsilon that any order proves."""
    bounds = (
        divergences
        - (math.log(delta) + np.log(ORDERS)) / (ORDERS - 1)
        + np.log((ORDERS - 1) / ORDERS)
    )
    if np.isnan(bounds).all():
        return math.inf
    return max(0.0, float(np.nanmin(bounds)))


def _log_moment(sigma: float, q: float, order: float) -> float:
    """Return the logarithm of the moment A of the privacy loss."""
    if float(order).is_integer():
        return _whole_moment(sigma, q, int(order))
    return _fractional_moment(sigma, q, order)


def _whole_moment(sigma: float, q: float, order: int) -> float:
    """A finite sum: section 3.3, equation for integer orders."""
    k = np.arange(order + 1)
    terms = (
        _log_binomial(order, k)
        + k * math.log(q)
        + (order - k) * math.log1p(-q)
        + (k * k - k) / (2 * sigma**2)
    )
    return float(special.logsumexp(terms))


def _log_binomial(n: int, k: NDArray[np.int64]) -> Floats:
    found: Floats = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
    return found


def _fractional_moment(sigma: float, q: float, order: float) -> float:
    """Two series over i, each a half line of the integral; the terms change sign."""
    turn = sigma**2 * math.log(1 / q - 1) + 0.5
    logs: list[Floats] = []
    signs: list[Floats] = []
    for first in range(0, 1_000_000, TERMS):
        i = np.arange(first, first + TERMS, dtype=np.float64)
        j = order - i
        coefficient = special.binom(order, i)
        log_coefficient = np.log(np.abs(coefficient))
        low = (
            log_coefficient + i * math.log(q) + j * math.log1p(-q)
            + (i * i - i) / (2 * sigma**2) + _log_half_erfc((i - turn) / (math.sqrt(2) * sigma))
        )  # fmt: skip
        high = (
            log_coefficient + j * math.log(q) + i * math.log1p(-q)
            + (j * j - j) / (2 * sigma**2) + _log_half_erfc((turn - j) / (math.sqrt(2) * sigma))
        )  # fmt: skip
        larger = np.maximum(low, high)
        ends = np.flatnonzero((larger < NEGLIGIBLE) & (i > order))
        count = int(ends[0]) + 1 if len(ends) else TERMS
        logs += [low[:count], high[:count]]
        signs += [np.sign(coefficient[:count])] * 2
        if len(ends):
            break
    return float(special.logsumexp(np.concatenate(logs), b=np.concatenate(signs)))


def _log_half_erfc(x: Floats) -> Floats:
    """Return log(erfc(x) / 2), exact far out, where erfc is 0."""
    found: Floats = special.log_ndtr(-x * math.sqrt(2))
    return found
