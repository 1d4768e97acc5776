"""Points of the curves: means of what a loop has yielded since the last point."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import truediv
from typing import Any, TypeAlias

from torch import Tensor

from trainops.runtime.errors import IncompatibleState, InputError, NonFiniteLoss
from trainops.runtime.throughput import SYSTEM

MAX_NAME_LENGTH = 64
Total: TypeAlias = Callable[[list[float]], list[float]]  # adds numbers up over all ranks


@dataclass(slots=True)
class Mean:
    total: float | Tensor = 0.0
    count: int = 0
    logged_at: int = 0  # step of the last point; 0: none yet


class Means:
    """By name; a metric that is yielded more rarely than every N steps has a point each time.

    `total` adds up the numbers of all ranks: each yield of each rank has the same weight.
    """

    def __init__(
        self, every_steps: int, total: Callable[[list[float]], list[float]] = list
    ) -> None:
        self._every_steps, self._total = every_steps, total
        self._means: dict[str, Mean] = {}

    def add(self, step: int, values: object) -> dict[str, float]:
        """Return the points that are due at this step.

        Raises InputError for what is no metric, NonFiniteLoss where the mean of a loss is not
        finite.
        """
        if not isinstance(values, Mapping):
            problem = f"the loop yielded a {type(values).__name__}"
            raise InputError({"recipe": f"{problem}; allowed: metrics by name"})
        for name, value in values.items():
            mean, number = self._means.setdefault(_name(name), Mean()), number_of(name, value)
            if not (isinstance(number, Tensor) and number.is_cuda):
                _require_finite(step, name, float(number))
            mean.total, mean.count = mean.total + number, mean.count + 1
        due = [
            name
            for name in values
            if not (logged := self._means[name].logged_at) or step - logged >= self._every_steps
        ]
        return self._points(step, due)

    def rest(self, step: int) -> dict[str, float]:
        """Return points of all that was yielded since the last ones."""
        return self._points(step, [name for name, each in self._means.items() if each.count])

    def state_dict(self) -> dict[str, Any]:
        return {
            name: {"total": float(each.total), "count": each.count, "logged_at": each.logged_at}
            for name, each in self._means.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        try:
            self._means = {
                name: Mean(float(each["total"]), int(each["count"]), int(each["logged_at"]))
                for name, each in state.items()
            }
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise IncompatibleState(f"the means cannot be read: {error!r}") from error

    def _points(self, step: int, names: Sequence[str]) -> dict[str, float]:
        if not names:
            return {}
        means = [self._means[name] for name in names]
        numbers = [number for each in means for number in (float(each.total), float(each.count))]
        totals = self._total(numbers)
        points = dict(zip(names, map(truediv, totals[::2], totals[1::2]), strict=True))
        for name, value in points.items():
            # of one that is left on its GPU until now: others were finite when they were added
            _require_finite(step, name, value, num_steps=self._means[name].count)
            self._means[name] = Mean(logged_at=step)
        return points


def _require_finite(step: int, name: str, value: float, num_steps: int = 1) -> None:
    if name.endswith("loss") and not math.isfinite(value):
        raise NonFiniteLoss(step, value, name, num_steps=num_steps)


def _name(name: Any) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH:
        problem = f"the loop yielded a metric named {name!r:.80}"
        raise InputError({"recipe": f"{problem}; allowed: at most {MAX_NAME_LENGTH} characters"})
    if name.startswith(SYSTEM):
        problem = f"the loop yielded a metric named {name!r}"
        raise InputError({"recipe": f"{problem}; allowed: names that do not begin with {SYSTEM}"})
    return name


def number_of(name: str, value: Any) -> float | Tensor:
    """Return a float, or a float64 tensor: a GPU is not waited for before a point is due."""
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise _not_a_number(f"a tensor of shape {tuple(value.shape)}", name)
        one: Tensor = value.detach()
        return float(one) if one.device.type == "cpu" else one.double().reshape(())
    try:
        return float(value)
    except (TypeError, ValueError):
        raise _not_a_number(f"a {type(value).__name__}", name) from None


def _not_a_number(given: str, name: str) -> InputError:
    allowed = "numbers, and tensors of one element"
    return InputError({"recipe": f"the loop yielded {given} as {name!r}; allowed: {allowed}"})
