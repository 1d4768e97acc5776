"""What a file would become if it were loaded: every value, and the shape of every tensor.

An outline is read without making a single tensor or calling a single function that the file names,
so it can be looked at before anything is believed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

MAX_DEPTH = 64
SLACK = 2**20
EXPANSION = 8  # a state may hold the same tensor or list several times, but not for ever


@dataclass(frozen=True, slots=True)
class Name:
    """A function or class that the file names. It stands for nothing but its name."""

    path: str


@dataclass(frozen=True, slots=True)
class StorageOutline:
    """The bytes that one or several tensors look at."""

    dtype: str
    item_bytes: int
    numel: int


@dataclass(frozen=True, slots=True)
class TensorOutline:
    dtype: str
    shape: tuple[int, ...]
    num_bytes: int


@dataclass(slots=True)
class DtypeOutline:
    """A NumPy type of numbers; its byte order arrives after it was made."""

    name: str
    item_bytes: int


@dataclass(slots=True)
class ArrayOutline:
    """A NumPy array; its shape arrives after it was made."""

    dtype: str = ""
    shape: tuple[int, ...] | None = None
    num_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ScalarOutline:
    """A NumPy number."""

    dtype: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Ordered:
    """An OrderedDict; `attributes` are set by torch and not used here."""

    entries: dict[object, object] = field(default_factory=dict)
    attributes: list[object] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Outline:
    """`enums` are the enumerations and classes of paths whose members the file holds by value."""

    root: object
    enums: frozenset[str] = frozenset()

    def keys(self) -> list[object]:
        """Return the keys at the top, if there are any."""
        entries = entries_of(self.root)
        return [] if entries is None else list(entries)


def entries_of(node: object) -> Mapping[Any, object] | None:
    """Return what a dict of any kind holds."""
    if isinstance(node, Ordered):
        return node.entries
    return node if isinstance(node, dict) else None


def children(node: object) -> Iterator[object]:
    """Yield what a container holds; nothing where the node is none."""
    if isinstance(node, list | tuple):
        yield from node
    elif (entries := entries_of(node)) is not None:
        yield from entries.values()
    if isinstance(node, Ordered):
        yield from node.attributes


def num_bytes(node: object) -> int:
    """Return the bytes of the numbers in a tensor or an array; 0 for everything else."""
    if isinstance(node, TensorOutline | ArrayOutline | ScalarOutline):
        return node.num_bytes
    return 0


def elements(shape: tuple[int, ...]) -> int:
    """Return how many elements there are; 1 for no dimension at all."""
    return prod(shape)
