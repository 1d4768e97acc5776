"""Points in arrays, and how many of them become few that show the same curve."""

import numpy as np
from numpy.typing import NDArray

POINT = np.dtype([("step", "<i8"), ("value", "<f8"), ("at", "<i8")])  # at: Unix time in µs


def read(content: bytes | memoryview) -> NDArray[np.void]:
    """Return the points that `tobytes` of an array of them wrote."""
    return np.frombuffer(content, POINT)


def joined(parts: list[NDArray[np.void]]) -> NDArray[np.void]:
    """Return the points of all arrays by step, one of each step."""
    points = np.concatenate(parts)
    if (np.diff(points["step"]) > 0).all():  # as most are read
        return points
    by_step: NDArray[np.void] = points[np.argsort(points["step"], kind="stable")]
    is_first: NDArray[np.bool_] = np.diff(by_step["step"], prepend=-1) != 0
    return by_step[is_first]


def thinned(points: NDArray[np.void], width: int) -> NDArray[np.void]:
    """Keep the lowest, the highest and a non-finite point of every `width` steps, and the last.

    The stretches of steps begin at multiples of the width, of equal points the first is kept. So
    points that were thinned in parts, to a divisor of the width, give what all points give.
    """
    if not len(points):
        return points
    stretch, value = points["step"] // width, points["value"]
    starts = np.flatnonzero(np.diff(stretch, prepend=stretch[0] - 1))
    sizes = np.diff(starts, append=len(points))
    is_finite = np.isfinite(value)
    lowest = np.minimum.reduceat(np.where(is_finite, value, np.inf), starts)
    highest = np.maximum.reduceat(np.where(is_finite, value, -np.inf), starts)
    kept = [
        _first(is_finite & (value == np.repeat(lowest, sizes)), starts),
        _first(is_finite & (value == np.repeat(highest, sizes)), starts),
        _first(~is_finite, starts),
        np.array([len(points) - 1]),
    ]
    indices: NDArray[np.int64] = np.unique(np.concatenate(kept))
    return points[indices]


def _first(wanted: NDArray[np.bool_], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first wanted index of each stretch that has one."""
    none = len(wanted)
    indices = np.minimum.reduceat(np.where(wanted, np.arange(none), none), starts)
    found: NDArray[np.int64] = indices[indices < none]
    return found
