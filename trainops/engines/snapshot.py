"""Freezing: a copy of a job's state that no later step can touch."""

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from trainops.engines.errors import UnfreezableState
from trainops.engines.job import StateDict
from trainops.engines.pages import private_pages

LARGE_BYTES = 2**18  # from here on, a tensor's copy begins at a page of memory
PLAIN = frozenset({int, float, bool, type(None), bytes})


def freeze(state: StateDict, into: StateDict | None = None) -> StateDict:
    """Return a copy of the state on the CPU: tensors, dicts, lists, tuples and plain values.

    The tensors of `into`, an earlier copy that nobody needs any more, are overwritten where they
    fit: fresh memory costs twice as much as the copy. Tensors of a GPU go to pinned memory one
    after the other without a pause, and have arrived when this returns. Equal states give equal
    bytes when saved, whatever their history: containers are new and strings are shared.
    Raises UnfreezableState, which names the place.
    """
    frozen: StateDict = _freeze(state, into, "state")
    if torch.cuda.is_initialized():
        for device in {tensor.device for tensor in tensors_in(state) if tensor.is_cuda}:
            torch.cuda.current_stream(device).synchronize()
    return frozen


def all_finite(state: Any) -> bool:
    """Whether every floating-point tensor in the state is free of NaN and infinities."""
    return all(
        bool(torch.isfinite(tensor).all())
        for tensor in tensors_in(state)
        if tensor.is_floating_point()
    )


def tensors_in(state: Any) -> Iterator[torch.Tensor]:
    """Yield every tensor of a state."""
    if isinstance(state, torch.Tensor):
        yield state
    elif isinstance(state, dict):
        for each in state.values():
            yield from tensors_in(each)
    elif isinstance(state, list | tuple):
        for each in state:
            yield from tensors_in(each)


class SafePoint:
    """The newest frozen state: what checkpoints are written from, and what a failure leaves.

    There is one, in memory that is used again and again. It is refreshed as often as `share` of
    the time pays for: at every step when steps are long.
    """

    def __init__(self, *, clock: Callable[[], float], share: float) -> None:
        self.step: int | None = None
        self.state: StateDict = {}
        self._clock = clock
        self._rest = (
            1 / share - 1 if share else math.inf
        )  # seconds of peace for a second's freezing
        self._next_at = -math.inf if share else math.inf

    def is_affordable(self) -> bool:
        return self._clock() >= self._next_at

    def take(self, step: int, capture: Callable[[], StateDict]) -> None:
        """Freeze what `capture` returns; an error in it leaves the earlier safe point standing."""
        began = self._clock()
        state = capture()
        self.step = None  # while the buffers are being overwritten, there is none
        self.state = freeze(state, into=self.state)
        self.step = step
        ended = self._clock()
        self._next_at = ended + (ended - began) * self._rest if self._rest < math.inf else math.inf


def _freeze(value: Any, into: Any, place: str) -> Any:
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is str:
        return sys.intern(value)
    if isinstance(value, torch.Tensor):
        return _freeze_tensor(value, into)
    if isinstance(value, dict):
        return _freeze_dict(value, into if type(into) is dict else {}, place)
    if kind is list or kind is tuple:
        return _freeze_sequence(value, into, place)
    raise UnfreezableState(
        f"{place} is a {kind.__module__}.{kind.__qualname__}; a state holds tensors, dicts, lists, "
        "tuples, strings and numbers only (convert NumPy arrays with torch.from_numpy)"
    )


def _freeze_tensor(tensor: torch.Tensor, into: Any) -> torch.Tensor:
    tensor = tensor.detach()
    fits = (
        isinstance(into, torch.Tensor)
        and into.shape == tensor.shape
        and into.dtype == tensor.dtype
        and into.stride() == tensor.stride()
    )
    target = into if fits else _room_for(tensor)
    return target.copy_(tensor, non_blocking=tensor.is_cuda)


def _room_for(tensor: torch.Tensor) -> torch.Tensor:
    """Return memory for a copy, from which a large one can be written to a disk as it lies."""
    if tensor.is_cuda or tensor.nbytes < LARGE_BYTES:
        return torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
    flat = torch.frombuffer(private_pages(tensor.nbytes), dtype=tensor.dtype)
    layout = torch.empty_like(tensor, device="meta")
    return flat.as_strided(layout.shape, layout.stride())


def _freeze_dict(value: dict[Any, Any], into: dict[Any, Any], place: str) -> dict[Any, Any]:
    frozen = {}
    for key, each in value.items():
        kept = sys.intern(key) if type(key) is str else key
        if type(kept) not in PLAIN and type(kept) is not str:
            raise UnfreezableState(f"{place} has the key {key!r}; keys are strings or numbers")
        frozen[kept] = _freeze(each, into.get(kept), f"{place}.{key}")
    return frozen


def _freeze_sequence(value: Any, into: Any, place: str) -> Any:
    if PLAIN.issuperset(map(type, value)):  # thousands of numbers, such as a generator's state
        return type(value)(list(value))
    before = (
        into if isinstance(into, list | tuple) and len(into) == len(value) else [None] * len(value)
    )
    frozen = [_freeze(each, before[i], f"{place}[{i}]") for i, each in enumerate(value)]
    return frozen if type(value) is list else tuple(frozen)
