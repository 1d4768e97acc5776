"""Freezing: a copy of a job's state that no later step can touch."""

import math
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeGuard

import torch

from trainops.runtime.checkpoint.pages import private_pages
from trainops.runtime.checkpoint.stream import Stream
from trainops.runtime.errors import UnfreezableState
from trainops.runtime.job import StateDict

LARGE_BYTES = 2**18  # from here on, a tensor's copy begins at a page of memory
PLAIN = frozenset({int, float, bool, type(None), bytes})
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes of an element


def freeze(state: StateDict, into: StateDict | None = None) -> StateDict:
    """Return a copy of the state on the CPU: tensors, dicts, lists, tuples and plain values.

    The tensors of `into`, an earlier copy that is no longer needed, are overwritten where they
    fit: fresh memory costs twice as much as the copy. Tensors of a GPU go to pinned memory one
    after the other without a pause, and have arrived when this returns. Equal states give equal
    bytes when saved, whatever their history: containers are new and strings are shared.
    Raises UnfreezableState, which names the place, before anything is overwritten.
    """
    require_freezable(state)
    return freeze_parts(state, into)[0]


def require_freezable(state: StateDict) -> None:
    """Raise UnfreezableState, which names the place, for what is no tensor and no plain value."""
    for name, part in state.items():
        if not isinstance(part, Stream):
            _require_freezable(part, f"state.{name}")


def _require_freezable(value: Any, place: str) -> None:
    kind = type(value)
    if kind in PLAIN or kind is str or isinstance(value, torch.Tensor):
        return
    if isinstance(value, dict):
        for key, each in value.items():
            if type(key) not in PLAIN and type(key) is not str:
                raise UnfreezableState(f"{place} has the key {key!r}; keys are strings or numbers")
            _require_freezable(each, f"{place}.{key}")
    elif kind is list or kind is tuple:
        if not PLAIN.issuperset(map(type, value)):
            for i, each in enumerate(value):
                _require_freezable(each, f"{place}[{i}]")
    else:
        raise UnfreezableState(
            f"{place} is a {kind.__module__}.{kind.__qualname__}; a state holds tensors, dicts, "
            "lists, tuples, strings and numbers only (convert NumPy arrays with torch.from_numpy, "
            "NumPy scalars with float, int, bool or str; a Stream is a part of its own)"
        )


def freeze_parts(state: StateDict, into: StateDict | None = None) -> tuple[StateDict, set[str]]:
    """Do what freeze does, and name the parts that are not what they were in `into`, bit for bit.

    The state has passed require_freezable. A stream that only grew counts as unchanged.
    """
    before = into or {}
    frozen, changed = {}, set()
    for name, part in state.items():
        kept = sys.intern(name)
        if isinstance(part, Stream):
            frozen[kept] = part.copy()
            is_same = part.continues(before.get(name))
        else:
            copying = _Copying()
            frozen[kept] = copying.copy(part, before.get(name))
            is_same = copying.is_same and name in before
        if not is_same:
            changed.add(kept)
    if torch.cuda.is_initialized():
        for device in {tensor.device for tensor in tensors_in(state) if tensor.is_cuda}:
            torch.cuda.current_stream(device).synchronize()
    return frozen, changed


def all_finite(state: object) -> bool:
    """Whether every floating-point tensor in the state is free of NaN and infinities."""
    return all(
        bool(torch.isfinite(tensor).all())
        for tensor in tensors_in(state)
        if tensor.is_floating_point()
    )


def tensors_in(state: object) -> Iterator[torch.Tensor]:
    """Yield every tensor of a state."""
    if isinstance(state, torch.Tensor):
        yield state
    elif isinstance(state, dict):
        for each in state.values():
            yield from tensors_in(each)
    elif isinstance(state, list | tuple):
        for each in state:
            yield from tensors_in(each)


class StatePosition(NamedTuple):
    """Where a state stands; what is farther on is greater."""

    step: int
    is_evaluated: bool = True  # False: before the evaluation that ends the step


class SafePoint:
    """The newest frozen state: what checkpoints are written from, and what a failure leaves.

    There is one, in memory that is used again and again. It is refreshed as often as `share` of
    the time pays for: at every step when steps are long. Who reads it beside the loop holds `lock`,
    without which it is overwritten.
    """

    def __init__(self, *, clock: Callable[[], float], share: float) -> None:
        self.place: StatePosition | None = None
        self.state: StateDict = {}
        self.lock = threading.Lock()
        self._changed: set[str] = set()
        self._clock = clock
        self._rest = (
            1 / share - 1 if share else math.inf
        )  # seconds of peace for a second's freezing
        self._next_at = -math.inf if share else math.inf

    def is_affordable(self) -> bool:
        return self._clock() >= self._next_at

    def take(self, place: StatePosition, capture: Callable[[], StateDict]) -> None:
        """Freeze what `capture` returns; an error in it leaves the earlier safe point standing.

        Raises UnfreezableState, which leaves it, too.
        """
        began = self._clock()
        state = capture()
        require_freezable(state)
        with self.lock:
            self.place = None  # while the buffers are being overwritten, there is none
            changed = set(state)  # if it breaks off, what was overwritten cannot be compared
            try:
                self.state, changed = freeze_parts(state, into=self.state)
            finally:
                self._changed |= changed
            self.place = place
        ended = self._clock()
        self._next_at = ended + (ended - began) * self._rest if self._rest < math.inf else math.inf

    def restored(self, state: StateDict) -> None:
        """Remember the streams that the job went on from: what it appends is all that is new."""
        self.state = {name: part.copy() for name, part in state.items() if isinstance(part, Stream)}

    def changes(self) -> set[str]:
        """Return the parts that changed since this was last asked."""
        changed, self._changed = self._changed, set()
        return changed


class _Copying:
    """A copy of one part, and whether it is bit for bit what it is copied over.

    Comparing reads what copying would, and stops at the first difference; tensors that are the
    same are not written. From the first difference on, nothing is compared any more.
    """

    def __init__(self) -> None:
        self.is_same = True

    def copy(self, value: Any, into: object) -> Any:
        kind = type(value)
        if kind in PLAIN:
            self._compare_plain(value, into)
            return value
        if kind is str:
            self._compare_plain(value, into)
            return sys.intern(value)
        if isinstance(value, torch.Tensor):
            return self._copy_tensor(value, into)
        if isinstance(value, dict):
            return self._copy_dict(value, into)
        return self._copy_sequence(value, into)

    def _compare_plain(self, value: object, into: object) -> None:
        """Compare by bytes: 0.0 equals -0.0, True equals 1, and a NaN does not equal itself."""
        self.is_same = self.is_same and pickle.dumps(value) == pickle.dumps(into)

    def _copy_tensor(self, tensor: torch.Tensor, into: object) -> torch.Tensor:
        tensor = tensor.detach()
        if not _fits(into, tensor):
            self.is_same = False
            return _room_for(tensor).copy_(tensor, non_blocking=tensor.is_cuda)
        if self.is_same and _has_same_bits(into, tensor):
            return into
        self.is_same = False
        return into.copy_(tensor, non_blocking=tensor.is_cuda)

    def _copy_dict(self, value: dict[object, object], into: object) -> dict[object, object]:
        before = into if type(into) is dict else {}
        self.is_same = self.is_same and list(value) == list(before)
        frozen = {}
        for key, each in value.items():
            kept = sys.intern(key) if type(key) is str else key
            frozen[kept] = self.copy(each, before.get(kept))
        return frozen

    def _copy_sequence(self, value: Any, into: Any) -> object:
        if PLAIN.issuperset(map(type, value)):  # thousands of numbers, such as a generator's state
            self._compare_plain(value, into)
            return type(value)(list(value))
        if type(into) is not type(value) or len(into) != len(value):
            self.is_same = False
            into = [None] * len(value)
        frozen = [self.copy(each, into[i]) for i, each in enumerate(value)]
        return frozen if type(value) is list else tuple(frozen)


def _fits(into: object, tensor: torch.Tensor) -> TypeGuard[torch.Tensor]:
    return (
        isinstance(into, torch.Tensor)
        and into.shape == tensor.shape
        and into.dtype == tensor.dtype
        and into.stride() == tensor.stride()
    )


def _has_same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one shape, type and layout hold the same; False if not worth it."""
    if other.is_cuda or other.is_conj() or other.is_neg() or other.element_size() not in BITS:
        return False
    if _is_of_words(one) and _is_of_words(other):  # twice as fast
        return torch.equal(one.view(-1).view(torch.int64), other.view(-1).view(torch.int64))
    bits = BITS[other.element_size()]
    return torch.equal(one.view(bits), other.view(bits))


def _is_of_words(tensor: torch.Tensor) -> bool:
    size = tensor.element_size()
    return (
        tensor.is_contiguous()
        and tensor.nbytes % 8 == 0
        and tensor.storage_offset() * size % 8 == 0
    )


def _room_for(tensor: torch.Tensor) -> torch.Tensor:
    """Return memory for a copy, from which a large one can be written to a disk as it lies."""
    if tensor.is_cuda or tensor.nbytes < LARGE_BYTES:
        return torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
    flat = torch.frombuffer(private_pages(tensor.nbytes, huge=True), dtype=tensor.dtype)
    layout = torch.empty_like(tensor, device="meta")
    return flat.as_strided(layout.shape, layout.stride())
