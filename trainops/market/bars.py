"""Arrays of numbers, and the prices of bars."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Bars(NamedTuple):
    """Prices, each an array of (bars, symbols)."""

    open: Floats
    high: Floats
    low: Floats
    close: Floats
