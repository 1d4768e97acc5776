"""Tighter figures than Rényi's, from privacy loss distributions; slower, and with torch.

Gopi, Lee and Wutschitz, "Numerical composition of differential privacy" (2021), as Opacus has it.
"""

import math
import warnings
from functools import lru_cache

import numpy as np
from opacus.accountants import PRVAccountant

from trainops.engines.federated import accounting
from trainops.engines.federated.accounting import Spent

LARGEST = 100.0  # above it a tighter figure takes minutes and gigabytes, and says nothing more


def epsilon(spent: Spent, delta: float) -> float:
    """Return an upper bound of the epsilon of all these steps together; never above Rényi's.

    That is what it is above LARGEST, where there is no noise, and at a delta that is smaller than
    what the other's sums of floating-point numbers lose.
    """
    used = tuple(sorted((each, steps) for each, steps in spent.items() if steps and each[1]))
    by_renyi = accounting.epsilon(spent, delta)
    if not used or by_renyi > LARGEST:
        return by_renyi
    return max(0.0, min(by_renyi, _epsilon(used, delta)))


@lru_cache(maxsize=1024)
def _epsilon(used: tuple[tuple[tuple[float, float], int], ...], delta: float) -> float:
    accountant = PRVAccountant()
    accountant.history = [(sigma, rate, steps) for (sigma, rate), steps in used]
    try:
        # It takes logarithms of 0 and leaves them out; its Renyi figure says but where to look.
        with np.errstate(divide="ignore"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Optimal order")
            return float(accountant.get_epsilon(delta=delta, eps_error=0.01))
    except ValueError:
        return math.inf
