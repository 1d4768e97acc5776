"""Points of the curves: means of what a loop has yielded since the last point.

What is on a GPU is looked at when a point is due or a state is taken: reading it waits for the GPU.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import truediv
from typing import Any, TypeAlias

from torch import Tensor

from trainops.media.names import SYSTEM
from trainops.runtime.errors import IncompatibleState, InputError, NonFiniteLoss

MAX_NAME_LENGTH = 64
Total: TypeAlias = Callable[[list[float]], list[float]]  # adds numbers up over all ranks


@dataclass(slots=True)
class Mean:
    total: float | Tensor = 0.0
    count: int = 0
    num_looked: int = 0  # of `count`: known to be finite, if it is a loss; not part of a state
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
        self._watched: dict[str, Mean] = {}  # losses that are not yielded, since the last look

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
            if not isinstance(number, Tensor):
                _require_finite(step, name, number)
            mean.total, mean.count = mean.total + number, mean.count + 1
        due = [
            name
            for name in values
            if not (logged := self._means[name].logged_at) or step - logged >= self._every_steps
        ]
        return self._points(step, due)

    def watch(self, step: int, name: str, value: object) -> None:
        """Look at a loss that is not yielded. Raises NonFiniteLoss; on a GPU, `look` does."""
        mean, number = self._watched.setdefault(name, Mean()), number_of(name, value)
        if not isinstance(number, Tensor):
            _require_finite(step, name, number)
        mean.total, mean.count = mean.total + number, mean.count + 1

    def rest(self, step: int) -> dict[str, float]:
        """Return points of all that was yielded since the last ones."""
        return self._points(step, [name for name, each in self._means.items() if each.count])

    def look(self, step: int) -> None:
        """Wait for the values that are on a GPU. Raises NonFiniteLoss where a loss is not finite.

        For each state: no checkpoint is later than the first loss that is not finite.
        """
        for name, mean in (*self._means.items(), *self._watched.items()):
            mean.total = float(mean.total)
            num_steps = max(1, mean.count - mean.num_looked)
            _require_finite(step, name, mean.total, num_steps=num_steps)
            mean.num_looked = mean.count
        self._watched = {}

    def state_dict(self) -> dict[str, Any]:
        return {
            name: {"total": float(each.total), "count": each.count, "logged_at": each.logged_at}
            for name, each in self._means.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        try:
            self._means = {
                name: Mean(
                    float(each["total"]), int(each["count"]), logged_at=int(each["logged_at"])
                )
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
            mean = self._means[name]
            _require_finite(step, name, value, num_steps=max(1, mean.count - mean.num_looked))
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


def number_of(name: str, value: Any, given: str = "the loop yielded") -> float | Tensor:
    """Return a float, or a float64 tensor of what is on a GPU, which is not waited for.

    `given` says in the error of what is no number where it came from.
    """
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise _not_a_number(f"{given} a tensor of shape {tuple(value.shape)}", name)
        one: Tensor = value.detach()
        return float(one) if _is_on_cpu(one) else one.double().reshape(())
    try:
        return float(value)
    except (TypeError, ValueError):
        raise _not_a_number(f"{given} a {type(value).__name__}", name) from None


def _is_on_cpu(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu"


def _not_a_number(given: str, name: str) -> InputError:
    allowed = "numbers, and tensors of one element"
    return InputError({"recipe": f"{given} as {name!r}; allowed: {allowed}"})
