"""Tighter figures than Rényi's, from privacy loss distributions; slower, and with torch.

Gopi, Lee and Wutschitz, "Numerical composition of differential privacy" (2021), as Opacus has it.
"""

import math
from functools import lru_cache

from opacus.accountants import PRVAccountant

from trainops.engines.federated.accounting import Spent


def epsilon(spent: Spent, delta: float) -> float:
    """Return an upper bound of the epsilon of all these steps together."""
    used = tuple(sorted((each, steps) for each, steps in spent.items() if steps and each[1]))
    if any(noise_multiplier == 0 for (noise_multiplier, _), _ in used):
        return math.inf
    return _epsilon(used, delta) if used else 0.0


@lru_cache(maxsize=1024)
def _epsilon(used: tuple[tuple[tuple[float, float], int], ...], delta: float) -> float:
    accountant = PRVAccountant()
    accountant.history = [(sigma, rate, steps) for (sigma, rate), steps in used]
    return float(accountant.get_epsilon(delta=delta, eps_error=0.01))
