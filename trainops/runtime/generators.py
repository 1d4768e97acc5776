"""Find the random generators that a recipe creates, and save their states as plain values."""

import random
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, distribution
from itertools import count, islice
from pathlib import PurePath
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias, TypedDict

import numpy as np
import torch

from trainops.runtime.errors import InputError

Generator: TypeAlias = (
    random.Random
    | np.random.Generator
    | np.random.RandomState
    | np.random.BitGenerator
    | torch.Generator
)
GENERATORS = (
    random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator,
    torch.Generator,
)  # fmt: skip
# Nothing is looked for inside of these.
CLOSED = (
    str, bytes, bytearray, int, float, complex, type(None), torch.Tensor, np.ndarray, np.generic,
    torch.dtype, torch.device, ModuleType, PurePath,
)  # fmt: skip
MAX_OBJECTS = 50_000  # that are looked at
MAX_EACH = 10_000  # of one container
# Whose code draws from what it is given, or from the global streams.
LIBRARIES = frozenset(sys.stdlib_module_names) | {
    "torch", "numpy", "pandas", "pyarrow", "scipy", "sklearn", "pydantic", "gymnasium", "trainops",
    "lightning", "torchmetrics", "transformers", "accelerate", "tokenizers", "safetensors",
    "huggingface_hub", "fsspec", "torchvision", "PIL", "peft",
}  # fmt: skip
COMMON_NAMES = frozenset({"datasets", "evaluate"})  # of libraries, and of modules of recipes


def find(objects: Mapping[str, object]) -> dict[str, Generator]:
    """Return every generator that can be reached from these objects, by where it is.

    Attributes, containers, closures, defaults, and the globals that functions and methods name
    are followed, breadth first. One that is reached in two ways has the shorter name; of several
    with the same name, as an instance's and its class's, those after the first are numbered.

    Raises InputError for one that is reached through nothing but a set of several objects: which
    of them it belongs to, the owner is unknown when it is restored.
    """
    found: dict[str, Generator] = {}
    seen: dict[int, object] = {}  # keeps them alive, so that no other gets the same id
    queue, unordered = deque(objects.items()), deque[tuple[str, object]]()
    while (queue or unordered) and len(seen) < MAX_OBJECTS:
        is_ordered = bool(queue)
        name, value = queue.popleft() if is_ordered else unordered.popleft()
        one = value.bit_generator if isinstance(value, np.random.Generator) else value
        if id(one) in seen:
            continue
        seen[id(one)] = one
        if isinstance(value, GENERATORS):
            if not _is_global(value):
                if not is_ordered:
                    raise InputError({"recipe": _unordered(name, value)})
                found[_free(name, found)] = value
            continue
        reached = ((f"{name}{step}", each) for step, each in inside(value))
        pairs = [pair for pair in reached if not isinstance(pair[1], CLOSED)]
        is_ordered = is_ordered and not (isinstance(value, set | frozenset) and len(pairs) > 1)
        (queue if is_ordered else unordered).extend(pairs)
    return found


def _free(name: str, found: Mapping[str, Generator]) -> str:
    numbered = (f"{name}#{number}" for number in count(2))
    return name if name not in found else next(each for each in numbered if each not in found)


def _unordered(name: str, generator: Generator) -> str:
    return (
        f"{name} is a {_kind(generator)} in a set, whose order differs between processes; "
        "allowed: a list, a tuple or a dict instead"
    )


def require_savable(found: Mapping[str, Generator]) -> None:
    """Raise InputError, which names it, for a generator whose state cannot be saved."""
    for name, generator in found.items():
        try:
            state_of(generator)
        except Exception as error:
            problem = (
                f"{name} is a {_kind(generator)}, whose state cannot be saved; allowed: "
                "random.Random, generators of numpy.random, torch.Generator, the global streams"
            )
            raise InputError({"recipe": problem}) from error


class SavedGenerator(TypedDict):
    """The kind of a generator and its state, as plain values and tensors."""

    kind: str
    state: Any  # as the library of the generator defines it


def state_of(generator: Generator) -> SavedGenerator:
    """Return its kind and its state, as plain values and tensors."""
    match generator:
        case torch.Generator():
            state: object = generator.get_state()
        case random.Random():
            state = generator.getstate()
        case np.random.RandomState():
            state = _plain(generator.get_state(legacy=False))
        case np.random.Generator():
            state = _plain(generator.bit_generator.state)
        case _:
            state = _plain(generator.state)
    return {"kind": _kind(generator), "state": state}


def put_back(generator: Generator, saved: SavedGenerator) -> bool:
    """Set a generator to a saved state; False, and nothing changed, if it is of another kind."""
    if saved.get("kind") != _kind(generator):
        return False
    state = saved["state"]
    match generator:
        case torch.Generator():
            generator.set_state(state)
        case random.Random():
            generator.setstate(state)
        case np.random.RandomState():
            generator.set_state(_like(generator.get_state(legacy=False), state))
        case np.random.Generator():
            bits = generator.bit_generator
            bits.state = _like(bits.state, state)
        case _:
            generator.state = _like(generator.state, state)
    return True


def _is_global(generator: Generator) -> bool:
    """Whether this is one of the streams that are part of every checkpoint anyway."""
    owners = (getattr(draw, "__self__", None) for draw in (random.random, np.random.random))
    return any(generator is each for each in (torch.default_generator, *owners))


def _kind(generator: Generator) -> str:
    name = type(generator).__name__
    if isinstance(generator, np.random.Generator):
        return f"{name} of {type(generator.bit_generator).__name__}"
    return f"{name} of {generator.device}" if isinstance(generator, torch.Generator) else name


def _plain(value: object) -> object:
    """Return NumPy's state with lists in place of arrays: uint64 is nothing that torch can save."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _like(own: object, saved: Any) -> Any:
    """Return what `_plain` was given, by a state of the same kind."""
    if isinstance(own, dict):
        return {name: _like(each, saved[name]) for name, each in own.items()}
    return np.array(saved, own.dtype) if isinstance(own, np.ndarray) else saved


def inside(value: object) -> Iterator[tuple[str, object]]:
    """Yield what can be reached from an object in one step, and how."""
    match value:
        case type():
            yield from _of_class(value)
            return
        case dict():
            for key, each in islice(tuple(value.items()), MAX_EACH):
                yield (f".{key}" if isinstance(key, str) else f"[{key!r:.40}]"), each
        case list() | tuple() | deque() | set() | frozenset():
            yield from (
                (f"[{n}]", each) for n, each in enumerate(islice(_members(value), MAX_EACH))
            )
        case partial():
            yield from (("", value.func), ("", value.args), ("", value.keywords))
        case MethodType() | BuiltinMethodType():
            yield from ((".__self__", value.__self__), ("", getattr(value, "__func__", None)))
        case FunctionType():
            yield from _of_function(value)
    yield from _attributes(value)
    yield from _of_class(type(value))


def _members(container: Iterable[object]) -> Iterable[object]:
    """Return what is in it; of a set only what is looked into, so that a lone one is the first."""
    members = tuple(container)
    if isinstance(container, set | frozenset):
        return (each for each in members if not isinstance(each, CLOSED))
    return members


def _of_function(function: FunctionType) -> Iterator[tuple[str, object]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f".{name}", cell.cell_contents
        except ValueError:  # nothing was assigned to it yet
            continue
    yield from (("", function.__defaults__ or ()), ("", function.__kwdefaults__ or {}))
    if not is_of_library(function.__module__):
        for name in sorted(_names(function.__code__) & function.__globals__.keys()):
            yield f".{name}", function.__globals__[name]


def _of_class(owner: type) -> Iterator[tuple[str, object]]:
    """Yield what a class and its bases have, their methods included, but for those of libraries."""
    for each in owner.__mro__:
        if not is_of_library(each.__module__):
            for name, value in tuple(vars(each).items()):
                yield f".{name}", _function_in(value)


def _function_in(value: object) -> object:
    """Return what a descriptor of a class wraps."""
    if isinstance(value, property):
        return value.fget
    return value.__func__ if isinstance(value, staticmethod | classmethod) else value


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    for name, each in tuple(getattr(value, "__dict__", {}).items()):
        yield ("" if name == "_modules" else f".{name}"), each  # a layer's name is an attribute
    for owner in type(value).__mro__:
        for name in _slots(vars(owner).get("__slots__", ())):
            try:
                yield f".{name}", object.__getattribute__(value, name)
            except AttributeError:
                continue


def _slots(slots: str | Iterable[str]) -> Iterable[str]:
    return (slots,) if isinstance(slots, str) else slots


def _names(code: CodeType) -> set[str]:
    """Return the names of globals that a function uses, and functions within it."""
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def is_of_library(module: str | None) -> bool:
    name = (module or "").partition(".")[0]
    if name in COMMON_NAMES:
        return _is_installed(name, str(getattr(sys.modules.get(name), "__file__", "")))
    return not name or name in LIBRARIES


@cache
def _is_installed(name: str, file: str) -> bool:
    """Whether the module in this file is that of the distribution with the same name."""
    try:
        installed = distribution(name).locate_file(f"{name}/__init__.py")
    except PackageNotFoundError:
        return False
    return str(installed) == file
