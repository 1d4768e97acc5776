"""The number of examples of a batch, which may be lists with an item per example."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from trainops.kinds.loop.examples import first_tensor


def num_examples_of(batch: Any) -> int | None:
    """Return the first dimension of the first tensor, or the length of lists of examples.

    Lists of examples are lists of equal length, such as images of different sizes and a list of
    dicts or a tensor of as many labels; and a list of tuples, each an example as it is.
    """
    first = first_dimension(batch)
    if first is None:
        return None
    parts = list(batch.values()) if isinstance(batch, Mapping) else batch
    if isinstance(parts, list | tuple):
        if _are_examples(parts):
            return len(parts)
        if isinstance(parts[0], list | tuple) and _are_lists_of_examples(parts):
            return len(parts[0])
    return first


def first_dimension(batch: Any) -> int | None:
    """Return that of the first tensor; None without one that has dimensions."""
    first = first_tensor(batch)
    return None if first is None or not first.ndim else first.shape[0]


def _are_examples(parts: Sequence[Any]) -> bool:
    """Whether this is a list of tuples with equal kinds of items; torch makes tuples lists."""
    is_list = isinstance(parts, list) and all(type(each) is tuple for each in parts)
    return is_list and len({tuple(map(_kind, each)) for each in parts}) == 1


def _are_lists_of_examples(parts: Sequence[Any]) -> bool:
    if not all(isinstance(each, list | tuple | Tensor) for each in parts):
        return False
    sizes = {each.shape[:1] if isinstance(each, Tensor) else (len(each),) for each in parts}
    return len(sizes) == 1 and any(map(_is_by_example, parts))


def _is_by_example(part: Any) -> bool:
    """Whether this has an item per example: not tensors that may be parts of one batch."""
    if isinstance(part, Tensor) or all(isinstance(each, Mapping) for each in part):
        return True
    return len({each.shape[:1] for each in part if isinstance(each, Tensor)}) > 1


def _kind(part: Any) -> object:
    if isinstance(part, Tensor):
        return part.ndim
    return Mapping if isinstance(part, Mapping) else type(part)
