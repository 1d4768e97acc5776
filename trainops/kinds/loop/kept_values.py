"""Values within kept objects that have a type of their own: scalars of NumPy, Counter, defaultdict.

A checkpoint holds plain values and tensors; these are written as a dict that names the type.
"""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from trainops.runtime.errors import UnfreezableState

TYPE, VALUE, FACTORY = "trainops.type", "value", "factory"
SCALAR, COUNTER, DEFAULT = "numpy", "Counter", "defaultdict"
NUMBERS = "biufc"  # kinds of NumPy's types that torch has
PLAIN = frozenset({int, float, bool, str, bytes, type(None)})
FACTORIES: dict[str, Callable[[], Any] | None] = {
    "int": int, "float": float, "bool": bool, "str": str, "list": list, "dict": dict,
    "Counter": Counter, "None": None,
}  # fmt: skip


def to_plain(value: Any, place: str, *, is_dict: bool) -> Any:
    """Return what is saved of a kept object's state; equal to it where all of it is plain.

    `is_dict`: the object is a dict, whose values come back with their types; states of other
    objects are what their load_state_dict expects. Raises UnfreezableState, which names the place.
    """
    if isinstance(value, dict):
        return _items(value, place, is_dict=is_dict)
    return _to_plain(value, place, is_dict=is_dict)


def _items(value: dict[Any, Any], place: str, *, is_dict: bool) -> dict[Any, Any]:
    return {
        name: _to_plain(each, f"{place}.{name}", is_dict=is_dict) for name, each in value.items()
    }


def _to_plain(value: Any, place: str, *, is_dict: bool) -> Any:
    if isinstance(value, np.generic):
        return _of_scalar(value, place)
    if type(value) in (list, tuple) and not PLAIN.issuperset(map(type, value)):
        items = (_to_plain(e, f"{place}[{i}]", is_dict=is_dict) for i, e in enumerate(value))
        return type(value)(items)
    if isinstance(value, dict):
        plain = _items(value, place, is_dict=is_dict)
        return _with_type(value, plain, place) if is_dict else plain
    return value


def _of_scalar(value: np.generic, place: str) -> Any:
    if isinstance(value, np.str_):
        return str(value)
    return {TYPE: SCALAR, VALUE: _tensor_of(value, place)} if value.dtype.kind in NUMBERS else value


def _with_type(value: dict[Any, Any], plain: dict[Any, Any], place: str) -> dict[str, Any]:
    if type(value) in (dict, OrderedDict):
        return plain
    if type(value) is Counter:
        return {TYPE: COUNTER, VALUE: plain}
    if type(value) is defaultdict:
        return {TYPE: DEFAULT, FACTORY: _name_of(value.default_factory, place), VALUE: plain}
    kind = type(value)
    raise UnfreezableState(
        f"{place} is a {kind.__module__}.{kind.__qualname__}, which a resume would make a dict; "
        f"allowed: dict, Counter, defaultdict, or dict({place.rpartition('.')[2]})"
    )


def from_plain(value: Any) -> Any:
    """Return what `to_plain` was given."""
    if type(value) in (list, tuple):
        if PLAIN.issuperset(map(type, value)):
            return value
        return type(value)(map(from_plain, value))
    if not isinstance(value, dict):
        return value
    if TYPE not in value:
        return {name: from_plain(each) for name, each in value.items()}
    if value[TYPE] == SCALAR:
        return value[VALUE].numpy()[()]
    items = from_plain(value[VALUE])
    if value[TYPE] == COUNTER:
        return Counter(items)
    return defaultdict(FACTORIES[value[FACTORY]], items)


def typed_as(own: Any, saved: Any) -> Any:
    """Return what was saved with the types of dicts that a new object's state has in its place.

    It is saved with plain dicts. A value that a defaultdict would make has the type of that.
    """
    if type(own) in (list, tuple) and type(saved) is type(own):
        return type(own)(map(typed_as, (*own, *[None] * len(saved)), saved))
    if not (isinstance(own, dict) and isinstance(saved, dict)):
        return saved
    items = {name: typed_as(_value_of(own, name, each), each) for name, each in saved.items()}
    if type(own) is defaultdict:
        return defaultdict(own.default_factory, items)
    return Counter(items) if type(own) is Counter else items


def _value_of(own: dict[Any, Any], name: Any, saved: Any) -> Any:
    """Return a value, also one that a defaultdict has yet to make where a dict was saved."""
    if name in own or not isinstance(saved, dict):
        return own.get(name)
    make = own.default_factory if type(own) is defaultdict else None
    return None if make is None else make()


def _tensor_of(value: Any, place: str) -> torch.Tensor:
    try:
        return torch.from_numpy(np.array(value))
    except TypeError as error:
        problem = f"{place} is a numpy.{type(value).__name__}, which torch does not have"
        raise UnfreezableState(f"{problem}; convert it with float(x)") from error


def _name_of(factory: Callable[[], Any] | None, place: str) -> str:
    for name, each in FACTORIES.items():
        if each is factory:
            return name
    factories = ", ".join(FACTORIES)
    raise UnfreezableState(
        f"{place} is a defaultdict of {factory!r:.80}, which a checkpoint cannot hold; "
        f"allowed: dict with setdefault, or a defaultdict of {factories}"
    )
