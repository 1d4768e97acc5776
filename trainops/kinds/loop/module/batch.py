"""Batches of any structure: moving them to a device, counting their examples."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch

from trainops.kinds.loop.counting import num_examples_of
from trainops.runtime.errors import InputError

Count: TypeAlias = Callable[[Any], int | None]


def to_device(batch: Any, device: torch.device) -> Any:
    """Return the batch with its tensors on the device; lists, tuples and mappings are followed."""
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(each, device) for each in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(to_device(each, device) for each in batch)
    if hasattr(batch, "to"):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {name: to_device(each, device) for name, each in batch.items()}
    return batch


def count_examples(batch: Any, count: Count = num_examples_of) -> int:
    """Return the number of examples. Raises InputError for a batch without a tensor of them."""
    number = count(batch)
    if number is None:
        problem = f"got a batch of type {type(batch).__name__} without a tensor of examples"
        raise InputError({"recipe": f"{problem}; override num_examples(batch)"})
    return number
