"""Tighter figures than Rényi's, from privacy loss distributions; slower, and with torch.

Gopi, Lee and Wutschitz, "Numerical composition of differential privacy" (2021), as Opacus has it.
"""

from functools import lru_cache

import numpy as np
from opacus.accountants import PRVAccountant

from trainops.engines.federated import accounting
from trainops.engines.federated.accounting import Spent

LARGEST = 100.0  # above it a tighter figure takes minutes and gigabytes, and says nothing more


def epsilon(spent: Spent, delta: float) -> float:
    """Return an upper bound of the epsilon of all these steps together; never above Rényi's.

    That is what it is above LARGEST, and where there is no noise.
    """
    used = tuple(sorted((each, steps) for each, steps in spent.items() if steps and each[1]))
    by_renyi = accounting.epsilon(spent, delta)
    if not used or by_renyi > LARGEST:
        return by_renyi
    return min(by_renyi, _epsilon(used, delta))


@lru_cache(maxsize=1024)
def _epsilon(used: tuple[tuple[tuple[float, float], int], ...], delta: float) -> float:
    accountant = PRVAccountant()
    accountant.history = [(sigma, rate, steps) for (sigma, rate), steps in used]
    with np.errstate(divide="ignore"):  # it takes logarithms of 0 and leaves them out
        return float(accountant.get_epsilon(delta=delta, eps_error=0.01))
