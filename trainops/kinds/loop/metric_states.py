"""States of torchmetrics, which a module's state_dict has only where they are persistent."""

import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trainops.kinds.loop.ranks import Merging
from trainops.lazy import load
from trainops.runtime.errors import IncompatibleState, InputError

Encoded: TypeAlias = list[Any]  # the type, and plain values of it
PLAIN = (bool, int, float, str, type(None))
MERGED: Mapping[str, Callable[[Any, Any], Any]] = {  # by the reduction of a state of torchmetrics
    "dim_zero_sum": operator.add,
    "dim_zero_max": torch.maximum,
    "dim_zero_min": torch.minimum,
    "dim_zero_cat": lambda one, other: torch.cat([one, other]),
}
NUMBERS = "biuf"  # kinds of NumPy's types


class MetricStates(Merging):
    """The states of the torchmetrics in a module, or of one, with their numbers of updates."""

    def __init__(self, module: nn.Module) -> None:
        self.metrics = _found("Metric", module)
        self._collections = _found("MetricCollection", module)

    def state_dict(self) -> dict[str, Any]:
        self.update_collections()
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

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Let the metrics have the states of before once the block has ended."""
        before = deepcopy(self.state_dict())
        yield
        self.load_state_dict(before)

    def merged(self, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the state of metrics that have seen what those of several states have.

        Raises IncompatibleState for metrics whose states are not summed, joined or compared.
        """
        found = {
            name: {"count": 0, "states": encode(dict(each._defaults))}
            for name, each in self.metrics.items()
        }
        for state in states:
            for name, each in self.metrics.items():
                if not found[name]["count"]:
                    found[name] = state[name]
                elif state[name]["count"]:
                    found[name] = _merged(name, each, found[name], state[name])
        return found

    def update_collections(self) -> None:
        """Give the metrics of a collection that share a state the newest one."""
        for collection in self._collections.values():
            collection.values(copy_state=False)

    def reset(self, places: Iterable[str]) -> None:
        """Reset metrics, and the collections that they are in: others have their state, too."""
        metrics = [self.metrics[each] for each in places]
        for collection in self._collections.values():
            members = collection.values(copy_state=False)
            if any(each is metric for each in members for metric in metrics):
                collection.reset()
        for metric in metrics:
            metric.reset()

    def forget_values(self) -> None:
        """Have the next compute() of each metric compute, and add up the states of all ranks."""
        for each in self.metrics.values():
            each._computed = None  # has no public setter

    def place_of(self, name: str, metric: object) -> str:
        """Return where a metric is in the module. `name`: that of its value, for InputError."""
        for place, each in self.metrics.items():
            if each is metric:
                return place
        problem = f"got a {type(metric).__name__} as {name!r}"
        allowed = "a Metric of torchmetrics that is an attribute of the module"
        raise InputError({"recipe": f"{problem}; allowed: {allowed}"})


def has_lists(metric: nn.Module) -> bool:
    """Whether a torchmetric, or one that it wraps, has lists of what it has seen."""
    states = [each.metric_state for each in _found("Metric", metric).values()]
    return any(isinstance(value, list) for each in states for value in each.values())


def _merged(
    name: str, metric: Any, one: Mapping[str, Any], other: Mapping[str, Any]
) -> dict[str, Any]:
    states, others = decode(one["states"]), decode(other["states"])
    for key, reduction in metric._reductions.items():
        how = getattr(reduction, "__name__", "none")
        is_list = isinstance(states[key], list)
        if how not in MERGED and not is_list:
            problem = f"{key!r} of the {type(metric).__name__} {name!r} is not merged ({how})"
            allowed = "as many processes as before, or a checkpoint outside of a validation"
            raise IncompatibleState(f"{problem}; allowed: {allowed}")
        merge = operator.add if is_list else MERGED[how]
        states[key] = merge(states[key], others[key])
    return {"count": one["count"] + other["count"], "states": encode(states)}


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
