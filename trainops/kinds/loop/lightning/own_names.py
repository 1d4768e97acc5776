"""Which attributes with an underscore are those of a recipe's class, not of its base classes."""

import dis
import inspect
from collections.abc import Iterator
from functools import cache
from types import CodeType
from typing import Any

LIBRARIES = ("torch", "lightning", "pytorch_lightning", "lightning_fabric", "torchmetrics")


def is_own(kind: type, name: str) -> bool:
    """Whether a name without an underscore, or one that no class of a library has or sets."""
    if not name.startswith("_"):
        return True
    return not name.startswith("__") and name not in _names_of_libraries(kind)


@cache
def _names_of_libraries(kind: type) -> frozenset[str]:
    found: set[str] = set()
    for each in kind.__mro__:
        if each.__module__.partition(".")[0] in LIBRARIES:
            found |= vars(each).keys()
            for code in _codes(each):
                found.update(_names_set_by(code))
    return frozenset(found)


def _codes(kind: type) -> Iterator[CodeType]:
    """Yield the code of the methods and properties of a class."""
    for each in vars(kind).values():
        parts: tuple[Any, ...] = (each,)
        if isinstance(each, property):
            parts = (each.fget, each.fset)
        for part in parts:
            code = getattr(inspect.unwrap(getattr(part, "__func__", part)), "__code__", None)
            if isinstance(code, CodeType):
                yield code


def _names_set_by(code: CodeType) -> Iterator[str]:
    for each in dis.get_instructions(code):
        if each.opname == "STORE_ATTR":
            yield str(each.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_set_by(constant)
