"""The least noise that keeps a plan within a budget. Without torch: the web process asks, too."""

from collections.abc import Callable, Iterable, Mapping

from trainops.kinds.federated.accounting import Spent, epsilon
from trainops.kinds.federated.limits import Infeasible

LEAST, MOST = 0.3, 20.0  # noise multipliers that are considered
PRECISION = 1e-4  # relative

Plan = Callable[[float], Iterable[Spent]]  # noise multiplier -> what each member would have spent


def find_noise(target: float, delta: float, plan: Plan) -> float:
    """Return the smallest noise multiplier whose worst epsilon is at most `target`.

    Raises Infeasible, which says what would be feasible.
    """

    def worst(noise: float) -> float:
        return max((epsilon(spent, delta) for spent in plan(noise)), default=0.0)

    if worst(LEAST) <= target:
        return LEAST
    if (reached := worst(MOST)) > target:
        raise Infeasible(target, rounded_up(reached), MOST)
    low, high = LEAST, MOST
    while high / low > 1 + PRECISION:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if worst(middle) <= target else (middle, high)
    return rounded_up(high)


def find_for(target: float, delta: float, steps: Mapping[float, int]) -> float:
    """Return the noise for members who take N steps at each sample rate, one rate each."""
    return find_noise(
        target, delta, lambda noise: [{(noise, rate): count} for rate, count in steps.items()]
    )


def rounded_up(value: float) -> float:
    """Round to four digits, never down: the budget must hold with what is shown."""
    rounded = float(f"{value:.4g}")
    return rounded if rounded >= value else float(f"{value * 1.0005:.4g}")
