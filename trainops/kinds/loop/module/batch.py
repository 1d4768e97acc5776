"""Batches of any structure: moving them to a device, counting their examples."""

from collections.abc import Mapping
from typing import Any

import torch

from trainops.kinds.loop.examples import first_tensor
from trainops.runtime.errors import InputError


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


def count_examples(batch: Any) -> int:
    """Return the first dimension of the batch's first tensor. Raises InputError without one."""
    found = first_tensor(batch)
    if found is None or not found.ndim:
        problem = f"got a batch of type {type(batch).__name__} without a tensor of examples"
        raise InputError({"recipe": f"{problem}; override num_examples(batch)"})
    return found.shape[0]
