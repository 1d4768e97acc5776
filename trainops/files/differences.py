"""How two checkpoints differ: which keys only one has, and by how much the others differ."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainops.files import own
from trainops.files.fields import is_number, plain_number, shown
from trainops.files.finite import leaves
from trainops.files.foreign import load, opened, outline_in

MISSING: object = object()


@dataclass(frozen=True, slots=True)
class FileDifference:
    """`largest` is the largest absolute difference of two numbers, None where that is no number."""

    place: str
    what: str
    largest: float | None = None


def differences(one: Path, other: Path) -> list[FileDifference]:
    """Return what differs between two checkpoints, of whatever formats. Raises FormatErrors."""
    before, after = _leaves_of(one), _leaves_of(other)
    places = [*before, *(place for place in after if place not in before)]
    found = (
        _difference(place, before.get(place, MISSING), after.get(place, MISSING))
        for place in places
    )
    return [each for each in found if each]


def _leaves_of(path: Path) -> dict[str, object]:
    if own.is_own(path):
        return dict(leaves(own.in_columns(own.load_parts(path))))
    with opened(path) as content:
        return dict(leaves(load(content, outline_in(content))))


def _difference(place: str, before: object, after: object) -> FileDifference | None:
    if before is MISSING or after is MISSING:
        which, value = ("second", after) if before is MISSING else ("first", before)
        return FileDifference(place, f"only in the {which}: {shown(value)}")
    if isinstance(before, np.ndarray) and isinstance(after, np.ndarray):
        before, after = _as_tensor(before), _as_tensor(after)
    if isinstance(before, Tensor) and isinstance(after, Tensor):
        return _tensor_difference(place, before, after)
    if type(before) is type(after) and not isinstance(before, Tensor | np.ndarray):
        return _plain_difference(place, plain_number(before), plain_number(after))
    return FileDifference(place, f"{shown(before)} and {shown(after)}")


def _tensor_difference(place: str, before: Tensor, after: Tensor) -> FileDifference | None:
    if (before.shape, before.dtype) != (after.shape, after.dtype):
        return FileDifference(place, f"{shown(before)} and {shown(after)}")
    differs = before != after
    if before.is_floating_point():
        differs &= ~(before.isnan() & after.isnan())
    num = int(differs.sum())
    if not num:
        return None
    largest = (before.double() - after.double()).abs()[differs].max()
    return FileDifference(place, f"{num} of {before.numel()} values", _finite(largest.item()))


def _plain_difference(place: str, before: object, after: object) -> FileDifference | None:
    if before == after or (before != before and after != after):
        return None
    largest = None
    if is_number(before) and is_number(after):
        largest = _finite(abs(before - after))
    return FileDifference(place, f"{shown(before)} and {shown(after)}", largest)


def _finite(difference: float) -> float | None:
    return float(difference) if math.isfinite(difference) else None


def _as_tensor(array: Any) -> Tensor:
    """Return the array as a tensor; unsigned 32 bits fit into 64 signed ones."""
    return torch.from_numpy(array.astype(np.int64) if array.dtype == np.uint32 else array.copy())
