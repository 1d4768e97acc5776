"""Containers of plain values, beyond lists, tuples and dicts, encoded with their types."""

import hashlib
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping
from enum import Enum
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from trainops.kinds.loop.changed_attributes import contents
from trainops.kinds.loop.kept_values import FACTORIES
from trainops.kinds.loop.metric_states import Encoded, decode, encode
from trainops.kinds.loop.named_classes import attributes_of, class_of, has_fields, name_of

SEQUENCES: dict[str, Any] = {each.__name__: each for each in (list, tuple, set, frozenset, deque)}
MAPPINGS: dict[str, Any] = {
    each.__name__: each for each in (dict, OrderedDict, Counter, defaultdict)
}
NAMESPACE = SimpleNamespace.__name__
DATACLASS, NAMED_TUPLE, ENUM = NAMED = "dataclass", "namedtuple", "enum"


def encode_container(value: Any) -> Encoded | None:
    """Do what `encode` does, for further containers, too; None where something in it is not plain.

    Of a defaultdict, the name of its type of values is remembered: "" for another function.
    """
    if (plain := encode(value)) is not None:
        return plain
    if isinstance(value, Enum) or has_fields(value) or hasattr(value, "_fields"):
        return _of_named_class(value)
    name = type(value).__name__
    if MAPPINGS.get(name) is type(value):
        factory = _name_of(value.default_factory) if name == "defaultdict" else ""
        pairs = _encoded([part for pair in value.items() for part in pair])
        return None if pairs is None else [name, pairs, factory]
    if type(value) is SimpleNamespace:
        attributes = encode_container(vars(value))
        return None if attributes is None else [name, attributes]
    if SEQUENCES.get(name) is not type(value):
        return None
    is_unordered = isinstance(value, set | frozenset)
    items = _encoded(sorted(value, key=repr) if is_unordered else list(value))
    return None if items is None else [name, items, *([value.maxlen] if name == "deque" else [])]


def decode_container(encoded: Encoded, before: object = None) -> Any:
    """Return what was encoded. `before` is in its place: its function is that of a defaultdict."""
    kind, value = encoded[:2]
    if kind == NAMESPACE:
        return SimpleNamespace(**decode_container(value))
    if kind in NAMED:
        return _decoded_of_named_class(encoded, before)
    if kind == "deque":
        return deque(map(decode_container, value), encoded[2])
    if kind in SEQUENCES:
        return SEQUENCES[kind](map(decode_container, value))
    if kind not in MAPPINGS or len(encoded) == 2:  # a dict of `encode`
        return decode(encoded)
    parts = [decode_container(each) for each in value]
    pairs = dict(zip(parts[::2], parts[1::2], strict=True))
    if kind != "defaultdict":
        return MAPPINGS[kind](pairs)
    own = getattr(before, "default_factory", None)
    return defaultdict(FACTORIES.get(encoded[2], own), pairs)


def encode_dataclass(
    value: Any, place: str, before: Mapping[str, object], found: dict[str, Any]
) -> Encoded:
    """Return what is plain of the fields, also of dataclasses in them.

    `before` is what `found` got at the beginning, by place: the dataclasses, and what is not plain.
    An instance that is still the same one comes back in place, by `decode_container`.
    """
    pairs, kind = [], type(value)
    found[place] = value
    for name, each in attributes_of(value).items():
        inner = f"{place}.{name}"
        if has_fields(each):
            pairs.append([name, encode_dataclass(each, inner, before, found)])
        elif holds_parameters(each) or (encoded := encode_container(each)) is None:
            found[inner] = each
        else:
            pairs.append([name, encoded])
    return [DATACLASS, pairs, name_of(kind), before.get(place, value) is value]


def holds_parameters(value: object) -> bool:
    """Whether it contains parameters, of which copies would be no parameters of a model."""
    return isinstance(value, nn.Parameter) or any(map(holds_parameters, contents(value)))


def digest_of(encoded: object) -> str:
    """Return equal texts for equal encoded values."""
    hasher = hashlib.blake2b(digest_size=16)
    _feed(hasher, encoded)
    return hasher.hexdigest()


def _encoded(values: list[Any]) -> list[Encoded] | None:
    found = [encode_container(each) for each in values]
    plain = [each for each in found if each is not None]
    return plain if len(plain) == len(found) else None


def _of_named_class(value: Any) -> Encoded | None:
    kind = type(value)
    name = name_of(kind)
    if class_of(name) is not kind:
        return None
    if isinstance(value, Enum):
        return [ENUM, value.name, name] if value.name in kind.__members__ else None
    if hasattr(value, "_fields"):
        items = _encoded(list(value))
        return None if items is None else [NAMED_TUPLE, items, name]
    attributes = attributes_of(value)
    parts = _encoded(list(attributes.values()))
    if parts is None:
        return None
    return [DATACLASS, [list(pair) for pair in zip(attributes, parts, strict=True)], name, False]


def _decoded_of_named_class(encoded: Encoded, before: object) -> Any:
    kind, value, name = encoded[:3]
    if kind == ENUM:
        return class_of(name)[value]
    if kind == NAMED_TUPLE:
        return class_of(name)._make(map(decode_container, value))
    return _dataclass(encoded, before)


def _dataclass(encoded: Encoded, before: object) -> Any:
    """Return an instance: `before` if it was the same one, else one with its further attributes."""
    _, pairs, name, is_same = encoded
    is_alike = name_of(type(before)) == name
    if is_same and is_alike:
        instance = before
    else:
        kind = type(before) if is_alike else class_of(name)
        instance = object.__new__(kind)
        for own, each in attributes_of(before).items() if is_alike else ():
            object.__setattr__(instance, own, each)
    for own, each in pairs:  # not by the method of the class, which may be frozen
        object.__setattr__(instance, own, decode_container(each, getattr(instance, own, None)))
    return instance


def _name_of(factory: object) -> str:
    return next((name for name, each in FACTORIES.items() if each is factory), "")


def _feed(hasher: Any, encoded: object) -> None:
    if isinstance(encoded, Tensor):
        flat = encoded.detach().cpu().contiguous().reshape(-1)
        hasher.update(f"{encoded.dtype} {tuple(encoded.shape)} ".encode())
        hasher.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
    elif isinstance(encoded, list | tuple):
        hasher.update(f"{len(encoded)}(".encode())
        for each in encoded:
            _feed(hasher, each)
    else:
        hasher.update(f"{type(encoded).__name__} {encoded!r},".encode())
