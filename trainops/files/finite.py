"""Whether numbers are numbers."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainops.files.fields import joined

FLOATS = "f"


def not_finite(tree: object, place: str = "") -> dict[str, str]:
    """Return the place of each tensor or array that holds NaN or infinities, and how many."""
    found = {}
    for where, leaf in leaves(tree, place):
        if num := _num_not_finite(leaf):
            found[where] = f"{num} of {_numel(leaf)} values are not finite"
    return found


def leaves(tree: object, place: str = "") -> Iterator[tuple[str, object]]:
    """Yield every value that is no container, with its place."""
    if isinstance(tree, Mapping):
        for name, each in tree.items():
            yield from leaves(each, joined(place, name))
    elif isinstance(tree, list | tuple):
        for number, each in enumerate(tree):
            yield from leaves(each, joined(place, number))
    else:
        yield place, tree


def _num_not_finite(leaf: object) -> int:
    if isinstance(leaf, Tensor) and leaf.is_floating_point():
        return leaf.numel() - int(torch.isfinite(leaf).sum())
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind == FLOATS:
        return leaf.size - int(np.isfinite(leaf).sum())
    return 0


def _numel(leaf: Any) -> int:
    return leaf.numel() if isinstance(leaf, Tensor) else int(leaf.size)
