"""Which implementation the engines compute with: the fast or the plain one.

A kind keeps its own optimizers and backward passes in `fast/`; its `plain.py` does the same
with public PyTorch, for comparison and for a torch version whose kernels have changed.
"""

import os
from collections.abc import Mapping
from enum import StrEnum

VARIABLE = "TRAINOPS_PLAIN"


class Implementation(StrEnum):
    FAST = "fast"
    PLAIN = "plain"


_NAMED = {"": Implementation.FAST, "0": Implementation.FAST, "1": Implementation.PLAIN}


def read(environment: Mapping[str, str] = os.environ) -> Implementation:
    """Return what TRAINOPS_PLAIN selects. Raises ValueError for other values than 0 and 1."""
    value = environment.get(VARIABLE, "")
    if value not in _NAMED:
        raise ValueError(f"{VARIABLE} is {value!r}; it must be 0 or 1")
    return _NAMED[value]


def is_plain() -> bool:
    """Whether the plain implementation is selected."""
    return read() is Implementation.PLAIN
