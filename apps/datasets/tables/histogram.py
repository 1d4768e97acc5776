"""How the numbers of a column are distributed, counted while they stream by."""

import math

import numpy as np
from numpy.typing import NDArray

from apps.datasets.tables.rows import ColumnHistogram

MAX_BINS = 32
DIGITS = 50  # binary ones that the number of a bin may have
MAX_SHIFT = 62  # of the number of a bin
MAX_EXPONENT = 1074  # of the smallest number
LARGEST = 2.0**1000  # edges of bins are numbers, too


class ColumnCounts:
    """The histogram of a column; bins are whole where all its numbers are, whatever its type."""

    def __init__(self) -> None:
        self._of_whole: NumberCounts | None = NumberCounts(is_whole=True)
        self._of_all = NumberCounts(is_whole=False)

    def add(self, numbers: NDArray[np.float64]) -> None:
        """Count finite numbers."""
        self._of_all.add(numbers)
        if self._of_whole is not None and np.equal(np.floor(numbers), numbers).all():
            self._of_whole.add(numbers)
        else:
            self._of_whole = None

    def to_json(self) -> ColumnHistogram | None:
        """Return what `NumberCounts.to_json` does."""
        return (self._of_whole or self._of_all).to_json()


class NumberCounts:
    """Counts in bins of one width, a power of two, which grows while there are too many bins.

    They do not depend on how the numbers come in batches: the width follows from the extremes, and
    a wider bin holds whole narrower ones. Bins of whole numbers are not narrower than 1.
    """

    def __init__(self, *, is_whole: bool) -> None:
        self._least = 0 if is_whole else None
        self._low = self._high = 0.0
        self._exponent = 0  # of the width
        self._first = 0  # number of the first bin: its left edge, in widths
        self._counts: NDArray[np.int64] = np.zeros(0, np.int64)

    def add(self, numbers: NDArray[np.float64]) -> None:
        """Count finite numbers."""
        if not len(numbers):
            return
        low, high = float(numbers.min()), float(numbers.max())
        if len(self._counts):
            low, high = min(low, self._low), max(high, self._high)
        exponent = _exponent(low, high, self._least)
        first, last = _bin(low, exponent), _bin(high, exponent)
        counts = np.zeros(last - first + 1, np.int64)
        if len(self._counts):
            known = self._first + np.arange(len(self._counts))
            wider = min(exponent - self._exponent, MAX_SHIFT)
            np.add.at(counts, (known >> wider) - first, self._counts)
        places = np.floor(np.ldexp(numbers, -exponent)).astype(np.int64)
        places[(numbers < 0) & (places == 0)] = -1  # too small to be divided
        counts += np.bincount(places - first, minlength=len(counts))
        self._low, self._high = low, high
        self._exponent, self._first, self._counts = exponent, first, counts

    def to_json(self) -> ColumnHistogram | None:
        """Return the counts; None without numbers, where all are the same, or beyond LARGEST."""
        if len(self._counts) < 2 or max(abs(self._low), abs(self._high)) > LARGEST:
            return None
        return {
            "start": math.ldexp(self._first, self._exponent),
            "width": math.ldexp(1.0, self._exponent),
            "counts": self._counts.tolist(),
        }


def _exponent(low: float, high: float, least: int | None) -> int:
    """Return that of the smallest width with which there are at most MAX_BINS bins."""
    largest = max(abs(low), abs(high))
    exponent = math.frexp(largest)[1] - DIGITS if largest else -MAX_EXPONENT
    exponent = max(exponent, -MAX_EXPONENT if least is None else least)
    half = high / 2 - low / 2  # the whole may be beyond all numbers
    if half:
        exponent = max(exponent, math.frexp(half)[1] - MAX_BINS.bit_length())
    while _bin(high, exponent) - _bin(low, exponent) >= MAX_BINS:
        exponent += 1
    return exponent


def _bin(number: float, exponent: int) -> int:
    place = math.floor(math.ldexp(number, -exponent))
    return -1 if number < 0 and not place else place
