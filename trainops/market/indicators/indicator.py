"""What all streaming indicators have: their whole state in one array of fixed size."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numba import types

OfOne: TypeAlias = Callable[[float], float]
OfThree: TypeAlias = Callable[[float, float, float], float]


class Indicator:
    """Takes one bar's values at a time; what it remembers does not grow with the series.

    `state` is changed in place and never replaced: `update` is bound to it.
    """

    def __init__(self, size: int) -> None:
        self.state = np.zeros(size)


def bound(step: Callable[..., object], state: object, num_values: int) -> Callable[..., Any]:
    """Return a compiled step with its state filled in.

    It is called at every bar: what a call of numba's costs is mostly the search for the types of
    its arguments, and those are always the same.
    """
    dispatcher: Any = step
    signature = (types.float64[::1], *[types.float64] * num_values)
    dispatcher.compile(signature)
    return partial(dispatcher.overloads[signature].entry_point, state)
