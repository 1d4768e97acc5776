"""Dataclasses, named tuples and enums of recipes, by the names that a checkpoint has of them."""

import sys
from dataclasses import fields, is_dataclass
from enum import EnumMeta
from operator import attrgetter
from typing import Any


def has_fields(value: object) -> bool:
    """Whether it is an instance of a dataclass, which is no container and has no state_dict."""
    is_instance = is_dataclass(value) and not isinstance(value, type)
    return is_instance and not (hasattr(value, "__len__") or hasattr(value, "state_dict"))


def attributes_of(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, and what else its instance has."""
    names = [*(each.name for each in fields(value)), *getattr(value, "__dict__", ())]
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def name_of(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def class_of(name: str) -> Any:
    """Return a class of a module that the recipe has imported; None for other names."""
    module, _, place = name.partition(":")
    try:
        found = attrgetter(place)(sys.modules[module])
    except (KeyError, AttributeError):
        return None
    is_named_tuple = isinstance(found, type) and hasattr(found, "_make")
    return found if is_dataclass(found) or is_named_tuple or isinstance(found, EnumMeta) else None
