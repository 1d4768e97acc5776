"""States of torchmetrics, which a module's state_dict has only where they are persistent."""

import sys
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trainops.lazy import load
from trainops.runtime.errors import InputError

Encoded: TypeAlias = list[Any]  # the type, and plain values of it
PLAIN = (bool, int, float, str, type(None))
NUMBERS = "biuf"  # kinds of NumPy's types


class MetricStates:
    """The states of the torchmetrics in a module, or of one, with their numbers of updates."""

    def __init__(self, module: nn.Module) -> None:
        self.metrics = _found("Metric", module)
        self._collections = _found("MetricCollection", module)

    def state_dict(self) -> dict[str, Any]:
        for collection in self._collections.values():
            collection.values(copy_state=False)  # those that share a state get the newest
        return {
            name: {"count": each.update_count, "states": encode(dict(each.metric_state))}
            for name, each in self.metrics.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, each in self.metrics.items():
            each.reset()
            for key, value in decode(state[name]["states"]).items():
                setattr(each, key, value)
            each._update_count = state[name]["count"]  # has no public setter


def _found(name: str, module: nn.Module) -> dict[str, Any]:
    """Return the modules of a class of torchmetrics within a module, by their names in it."""
    if "torchmetrics" not in sys.modules:
        return {}
    wanted = load(f"torchmetrics:{name}")
    return {place: each for place, each in module.named_modules() if isinstance(each, wanted)}


def encode(value: Any) -> Encoded | None:
    """Return the value in a form that remembers types and devices; None where it is not plain."""
    if isinstance(value, DTensor):  # only all ranks together can read it
        return None
    if isinstance(value, Tensor):
        return ["tensor", value.detach(), str(value.device)]
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in NUMBERS:
        return ["array", torch.from_numpy(np.array(value)), isinstance(value, np.generic)]
    if type(value) in PLAIN:
        return ["value", value]
    if type(value) in (list, tuple):
        items = [encode(each) for each in value]
        return None if None in items else [type(value).__name__, items]
    if type(value) is dict:
        pairs = [(encode(name), encode(each)) for name, each in value.items()]
        is_plain = all(name is not None and each is not None for name, each in pairs)
        return ["dict", pairs] if is_plain else None
    return None


def require_whole(what: str, value: Any) -> None:
    """Raise InputError where a value contains a tensor of which a rank has its rows only."""
    if _has_rows(value):
        problem = f"{what} contains a DTensor, of which a rank has its rows only"
        raise InputError({"recipe": f"{problem}; allowed: whole tensors (full_tensor())"})


def _has_rows(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_rows, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_rows, value))
    return isinstance(value, DTensor)


def decode(encoded: Encoded) -> Any:
    kind, value = encoded[0], encoded[1]
    if kind == "tensor":
        return value.to(torch.device(encoded[2]), copy=True)
    if kind == "array":
        array = value.numpy().copy()
        return array[()] if encoded[2] else array
    if kind in ("list", "tuple"):
        items = [decode(each) for each in value]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {decode(name): decode(each) for name, each in value}
    return value
