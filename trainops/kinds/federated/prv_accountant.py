"""Tighter figures than Rényi's, from privacy loss distributions; slower, and with torch.

Gopi, Lee and Wutschitz, "Numerical composition of differential privacy" (2021), as Opacus has it.
"""

import math
import warnings
from functools import lru_cache

import numpy as np
from opacus.accountants import PRVAccountant

from trainops.kinds.federated import accounting
from trainops.kinds.federated.accounting import Figure, Spent

LARGEST = 100.0  # above it a tighter figure takes minutes and gigabytes, and says nothing more
MOST_POINTS = 2**21  # of all grids of one figure: some 2 seconds, and 400 MB
EPSILON_ERROR, DELTA_ERROR = 0.01, 1e-3  # of a figure; the latter relative to delta


def measured(spent: Spent, delta: float) -> Figure:
    """Return an upper bound of the epsilon of all these steps together, never above Rényi's.

    It is Rényi's above LARGEST, where the tighter one would need more than MOST_POINTS, where
    there is no noise, and at a delta that is smaller than what sums of floating-point numbers lose.
    """
    used = {each: steps for each, steps in spent.items() if steps and each[1]}
    by_renyi = accounting.measured(spent, delta)
    is_far = not used or by_renyi.epsilon > LARGEST
    if is_far or num_points(used, delta) > MOST_POINTS:
        return by_renyi
    figure = Figure(max(0.0, _epsilon(tuple(sorted(used.items())), delta)), "prv")
    return min(by_renyi, figure, key=lambda each: each.epsilon)


def epsilon(spent: Spent, delta: float) -> float:
    """Return the epsilon alone."""
    return measured(spent, delta).epsilon


def num_points(used: Spent, delta: float) -> float:
    """Return how many points the grids have, one for each setting: time and memory go by it.

    Gopi, Lee and Wutschitz (2021), theorem 5.5 for the mesh, and remark 5.6 for the domain.
    """
    steps, error = sum(used.values()), delta * DELTA_ERROR
    ends = [accounting.epsilon({each: 1}, error / (8 * steps)) for each in used]
    end = max(EPSILON_ERROR, accounting.epsilon(used, error / 4), *ends) + 3
    mesh = EPSILON_ERROR / math.sqrt(steps * math.log(12 / error) / 2)
    return len(used) * 2 * end / mesh


@lru_cache(maxsize=1024)
def _epsilon(used: tuple[tuple[tuple[float, float], int], ...], delta: float) -> float:
    accountant = PRVAccountant()
    accountant.history = [(sigma, rate, steps) for (sigma, rate), steps in used]
    try:
        # It takes logarithms of 0 and leaves them out; its Renyi figure says but where to look.
        with np.errstate(divide="ignore"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Optimal order")
            found = accountant.get_epsilon(
                delta, eps_error=EPSILON_ERROR, delta_error=delta * DELTA_ERROR
            )
            return float(found)
    except ValueError:
        return math.inf
