"""State of callbacks: the attributes that a training has changed."""

from collections import deque
from collections.abc import Iterable, Mapping
from operator import is_
from typing import Any

import torch
from torch import Tensor

from trainops.kinds.loop.bests import copied
from trainops.kinds.loop.metric_states import Encoded, decode, encode
from trainops.runtime.errors import InputError


class ChangedAttributes:
    """Attributes of an object that differ from those it had at the beginning of the attempt.

    Plain ones are saved: numbers, texts, tensors, NumPy arrays, and lists, tuples and dicts of
    them; of other objects with state_dict and load_state_dict, their states. Objects of
    `left_out` are saved elsewhere. An attribute that has changed and is none of these raises an
    InputError, which names it.
    """

    def __init__(self, owner: object, left_out: Iterable[object] = ()) -> None:
        self._owner = owner
        self._left_out = {id(each) for each in left_out}
        self._plain: dict[str, Encoded] = {}
        self._others: dict[str, tuple[object, list[Any]]] = {}  # the object, and what it contains
        for name, value in vars(owner).items():
            encoded = encode(value)
            if encoded is None:
                self._others[name] = value, contents(value)
            else:
                self._plain[name] = copied(encoded)

    def state_dict(self) -> dict[str, Any]:
        attributes, changed, states = vars(self._owner), {}, {}
        for name, value in attributes.items():
            encoded = encode(value)
            if encoded is not None:
                if not is_same(encoded, self._plain.get(name)):
                    changed[name] = encoded
            elif not self._is_unchanged(name, value):
                raise self._cannot_be_saved(name, value)
            elif is_stateful(value) and id(value) not in self._left_out:
                states[name] = value.state_dict()
        removed = [name for name in self._names if name not in attributes]
        return {"changed": changed, "states": states, "removed": removed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        attributes = vars(self._owner)
        attributes.clear()
        attributes |= {name: decode(each) for name, each in self._plain.items()}
        attributes |= {name: each for name, (each, _) in self._others.items()}
        attributes |= {name: decode(each) for name, each in state["changed"].items()}
        for name, each in state["states"].items():
            attributes[name].load_state_dict(each)
        for name in state["removed"]:
            attributes.pop(name, None)

    @property
    def _names(self) -> list[str]:
        return [*self._plain, *self._others]

    def _is_unchanged(self, name: str, value: object) -> bool:
        return is_unchanged(value, *self._others.get(name, (None, [])))

    def _cannot_be_saved(self, name: str, value: object) -> InputError:
        problem = f"{type(self._owner).__name__}.{name} has changed, and is a "
        problem += f"{type(value).__name__}, which cannot be saved"
        allowed = "numbers, texts, tensors, NumPy arrays, and lists, tuples and dicts of them"
        return InputError({"recipe": f"{problem}; allowed: {allowed}"})


def is_unchanged(value: object, before: object, inside: list[Any]) -> bool:
    """Whether it is the same object, with the elements that it had."""
    now = contents(value)
    return before is value and len(now) == len(inside) and all(map(is_, now, inside))


def contents(value: object) -> list[Any]:
    """Return the elements of a container, without those of containers in it."""
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    return list(value) if isinstance(value, list | tuple | set | deque) else []


def is_stateful(value: object) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def is_same(one: Any, other: Any) -> bool:
    """Whether encoded values are equal, with their types."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and torch.equal(one.cpu(), other)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    return type(one) is type(other) and bool(one == other)
