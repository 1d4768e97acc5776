"""What is in a checkpoint: a line for each key, with type, shape and bytes. Nothing is loaded."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainops.files import own
from trainops.files.fields import shown
from trainops.files.foreign import opened, outline_in
from trainops.files.known import directory_format_of
from trainops.files.outline import (
    ArrayOutline,
    Ordered,
    ScalarOutline,
    TensorOutline,
    children,
    entries_of,
    num_bytes,
)

MAX_ITEMS = 20  # of a list of containers


@dataclass(frozen=True, slots=True)
class OutlineRow:
    """One value. `key` is its name within its container, which is `depth` containers deep."""

    depth: int
    key: str
    type: str
    shape: str = ""
    num_bytes: int = 0


def show(path: Path) -> list[OutlineRow]:
    """Return the lines of a checkpoint's directory or of a file. Raises FormatErrors, OSErrors."""
    if found := directory_format_of(path):
        files = [name for name in found.archives if (path / name).is_file()]
        return [line for name in files for line in _lines(name, _root(path / name), 0)]
    if own.is_own(path):
        return [line for name, part in own.outlines(path) for line in _lines(name, part, 0)]
    root = _root(path)
    entries = entries_of(root)
    named: Mapping[object, object] = {"": root} if entries is None else entries
    return [line for key, each in named.items() for line in _lines(str(key), each, 0)]


def _root(path: Path) -> object:
    with opened(path) as content:
        return outline_in(content).root


def _lines(key: str, node: object, depth: int) -> Iterator[OutlineRow]:
    match node:
        case TensorOutline(dtype, shape, size):
            yield OutlineRow(depth, key, f"tensor {dtype}", _shape(shape), size)
        case ArrayOutline(dtype, shape, size):
            yield OutlineRow(depth, key, f"array {dtype}", _shape(shape or ()), size)
        case ScalarOutline(dtype, size):
            yield OutlineRow(depth, key, f"number {dtype}", "", size)
        case dict() | Ordered() | list() | tuple():
            yield from _container(key, node, depth)
        case _:
            yield OutlineRow(depth, key, type(node).__name__, shown(node))


def _container(key: str, node: Any, depth: int) -> Iterator[OutlineRow]:
    """A list of plain values is one line, a long one of others is cut."""
    entries = entries_of(node)
    kind = "dict" if entries is not None else type(node).__name__
    if entries is None and not any(map(_is_large, node)):
        of = ", ".join(sorted({type(each).__name__ for each in node}))
        yield OutlineRow(depth, key, f"{kind} of {of or 'nothing'}", str(len(node)))
        return
    pairs = list(entries.items()) if entries is not None else list(enumerate(node))
    yield OutlineRow(depth, key, kind, str(len(pairs)), _total_bytes(node))
    for name, each in pairs if entries is not None else pairs[:MAX_ITEMS]:
        yield from _lines(str(name), each, depth + 1)
    if entries is None and len(pairs) > MAX_ITEMS:
        yield OutlineRow(depth + 1, "…", f"{len(pairs) - MAX_ITEMS} more")


def _is_large(node: object) -> bool:
    return isinstance(
        node, dict | Ordered | list | tuple | TensorOutline | ArrayOutline | ScalarOutline
    )


def _total_bytes(node: object) -> int:
    return num_bytes(node) + sum(map(_total_bytes, children(node)))


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "scalar"
