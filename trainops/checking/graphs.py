"""Describe the plain values that a job's objects lead to, by the path to each."""

import gc
import operator
import types
from collections import deque
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from itertools import count
from pathlib import PurePath

import numpy as np
import torch
from greenlet import greenlet
from torch import nn
from torch.amp import GradScaler
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from trainops.checking.messages import Leaf
from trainops.process.state_digests import digest
from trainops.runtime import generators
from trainops.runtime.job import Composed, ResumableJob

MAX_OBJECTS = 50_000
MAX_SHOWN = 40  # characters of a value
REGISTERED = ("._parameters", "._buffers")
OF_SCALERS = {"._scale", "._growth_tracker", "._init_scale", "._init_growth_tracker"}
PLAIN = str | bytes | bytearray | int | float | complex | None
SKIPPED = torch.dtype | torch.device | types.ModuleType | PurePath | types.CodeType


@dataclass(frozen=True, slots=True)
class _Around:
    """What is known of the surroundings of a value."""

    is_local: bool = False
    holder: str = ""
    holder_type: str = ""
    is_module: bool = False
    is_registered: bool = False
    owner: str = ""
    owner_type: str = ""
    iterator: str = ""
    iterator_type: str = ""


def describe(job: ResumableJob) -> dict[str, Leaf]:
    """Return the plain values that the job's objects and its suspended functions lead to."""
    objects = dict(job.objects()) if isinstance(job, Composed) else dict(vars(job))
    queue = deque((name, each, _Around()) for name, each in objects.items())
    for name, each in _local_variables(job, objects).items():
        queue.append((name, each, _Around(is_local=True)))
    leaves: dict[str, Leaf] = {}
    seen: dict[int, object] = {}  # keeps them alive, so that no other gets the same id
    while queue and len(seen) + len(leaves) < MAX_OBJECTS:
        path, value, around = queue.popleft()
        if isinstance(value, DistributedDataParallel):  # which is made anew around a kept model
            value = value.module
        if path in leaves or isinstance(value, SKIPPED) or _is_ours(value):
            continue
        if (described := _leaf(value)) is not None:
            leaves[path] = _made(around, *described, value)
            continue
        if id(value) in seen:
            continue
        seen[id(value)] = value
        inner = _inner(path, value, around)
        if (described := _outside(value)) is not None:
            leaves[path] = _made(inner, *described, value)
        queue.extend((_clean(f"{path}{step}"), each, _registered(inner, step))
                     for step, each in _inside(value) if not step.startswith(".__"))  # fmt: skip
    return dict(_counting_loops()) | leaves


def _counting_loops() -> Iterator[tuple[str, Leaf]]:
    """Yield each enumerate and zip of this process that takes the items of a loop of trainops.

    Nothing but the frame that takes their items refers to them.
    """
    for each in gc.get_objects():
        if type(each) in (enumerate, zip):
            kind = type(each).__name__
            for path in (f"{kind}({name})" for name in _loops_in(each)):
                yield path, Leaf(digest="", shown="its position", holder="", holder_type="",
                                 is_local=True, is_opaque=True, iterator=path,
                                 iterator_type=kind)  # fmt: skip


def _loops_in(iterator: object) -> Iterator[str]:
    reached = gc.get_referents(iterator)  # of zip, a tuple of iterators
    for each in (*reached, *(one for many in reached if type(many) is tuple for one in many)):
        frame = each.gi_frame if isinstance(each, types.GeneratorType) else None
        owner = None if frame is None else frame.f_locals.get("self")
        if _is_ours(owner) and isinstance(name := getattr(owner, "name", None), str):
            yield name


def _outside(value: object) -> tuple[str, str] | None:
    """Return a digest and a short text of a container's length or an iterator's position."""
    if isinstance(value, list | tuple | dict | deque):
        return str(len(value)), f"{len(value)} items"
    return (_position(value), "its position") if isinstance(value, Iterator) else None


def _inside(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, types.GeneratorType):
        if value.gi_frame is not None:
            yield from ((f".{name}", each) for name, each in value.gi_frame.f_locals.items())
    elif isinstance(value, GradScaler):  # its attributes are made at its first loss
        yield from ((f".{name}", each) for name, each in value.state_dict().items())
        own = generators.inside(value)
        yield from ((step, each) for step, each in own if step not in OF_SCALERS)
    elif not isinstance(value, Set):
        yield from generators.inside(value)


def _leaf(value: object) -> tuple[str, str] | None:
    """Return a digest and a short text of a plain value; None for all others."""
    if isinstance(value, PLAIN):
        return digest(value), repr(value)[:MAX_SHOWN]
    if isinstance(value, DTensor):
        value = value.to_local()  # only all ranks together can read the whole
    if isinstance(value, UninitializedParameter | UninitializedBuffer):
        return digest("lazy"), "a tensor without a size yet"
    if isinstance(value, torch.Tensor):
        shape = "x".join(map(str, value.shape)) or "one number"
        is_dense = value.layout is torch.strided and not value.is_meta
        return digest(value if is_dense else repr(value)), f"a tensor of {shape}"
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        content = repr(array) if array.dtype.hasobject else array.tobytes()
        return digest((str(array.dtype), content)), f"an array of {array.shape}"
    if isinstance(value, generators.GENERATORS):
        return _of_generator(value), "its state"
    if isinstance(value, Set):
        plain = sorted(repr(each) for each in value if isinstance(each, PLAIN))
        return digest((len(value), plain)), f"{len(value)} members"
    return None


def _of_generator(generator: generators.Generator) -> str:
    try:
        return digest(dict(generators.state_of(generator)))
    except NotImplementedError:  # of the operating system: it has no state
        return ""


def _made(around: _Around, digest: str, shown: str, value: object) -> Leaf:
    return Leaf(
        digest=digest,
        shown=shown,
        is_generator=isinstance(value, generators.GENERATORS),
        is_opaque=isinstance(value, Iterator) and not digest,
        **{name: getattr(around, name) for name in _Around.__dataclass_fields__},
    )


def _inner(path: str, value: object, around: _Around) -> _Around:
    """Return the surroundings of what is in a value."""
    kind = type(value).__name__
    inner = around
    if not isinstance(value, list | tuple | dict | deque | types.FunctionType | type):
        inner = replace(around, holder=path, holder_type=kind,
                        is_module=isinstance(value, nn.Module))  # fmt: skip
    if not inner.owner and not isinstance(value, type) and _is_stateful(value):
        inner = replace(inner, owner=path, owner_type=kind)
    if not inner.iterator and isinstance(value, Iterator):
        inner = replace(inner, iterator=path, iterator_type=kind)
    return inner


def _registered(around: _Around, step: str) -> _Around:
    return replace(around, is_registered=True) if step in REGISTERED else around


def _clean(path: str) -> str:
    """Return the path as a person writes it: parameters and buffers are attributes."""
    for each in REGISTERED:
        path = path.replace(f"{each}.", ".")
    return path


def _is_stateful(value: object) -> bool:
    kind = type(value)
    return hasattr(kind, "state_dict") and hasattr(kind, "load_state_dict")


def _is_ours(value: object) -> bool:
    """Whether this is an object of trainops, whose state is tested, or of its built-in recipes."""
    return type(value).__module__.partition(".")[0] == "trainops"


def _local_variables(job: ResumableJob, objects: Mapping[str, object]) -> dict[str, object]:
    """Return the variables of the recipe's functions that are suspended at this safe point."""
    recipes = {getattr(each, "__module__", None) for each in objects.values()}
    found: dict[str, object] = {}
    for frame in reversed(tuple(_frames(job))):
        module = frame.f_globals.get("__name__")
        if module in recipes or not generators.is_of_library(module):
            for name, value in frame.f_locals.items():
                found[name if name not in found else f"{frame.f_code.co_name}.{name}"] = value
    return found


def _frames(job: ResumableJob) -> Iterator[types.FrameType]:
    """Yield the suspended frames of the job's greenlets and generators, the innermost first."""
    for each in vars(job).values():
        frame = each.gr_frame if isinstance(each, greenlet) else None
        if isinstance(each, types.GeneratorType):
            frame = each.gi_frame
        while frame is not None:
            yield frame
            frame = frame.f_back


def _position(iterator: Iterator[object]) -> str:
    """Return where an iterator stands; empty where that cannot be read."""
    if isinstance(iterator, types.GeneratorType):
        return str(iterator.gi_frame and iterator.gi_frame.f_lasti)
    if isinstance(iterator, count):
        return repr(iterator)
    left = operator.length_hint(iterator, -1)
    return str(left) if left >= 0 else "attributes" * hasattr(iterator, "__dict__")
