"""Positions in iterable datasets: continued by the dataset's own state, or by reading again."""

import copy
import hashlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from trainops.kinds.loop.stream_reader import Delivered, Places
from trainops.runtime.errors import IncompatibleState

log = logging.getLogger(__name__)
SAMPLED_BYTES = 4096  # of each tensor, for the fingerprint of a batch


class StatefulDataset(Protocol):
    """After load_state_dict, the next iter() continues; those after it begin anew."""

    def state_dict(self) -> Any: ...
    def load_state_dict(self, state: Any) -> Any: ...


class Left(NamedTuple):
    """Where a limit ended a pass: its last round, and the state of the dataset before it."""

    number: int
    first: int
    state: Any


class StreamPosition:
    """Where an iterable dataset stands, as `StreamBatches` follows it."""

    note = ""  # for the receipt: what a resume had to do
    problem = ""  # and why it is not exact
    uncertain = ""  # why no resume is certain to be exact
    is_direct = True  # nothing is read again
    is_over = looks_ahead = False
    is_limited = False  # a pass may be over before the end of the dataset
    left: Left | None = None  # the pass before was over then
    reads_left = False  # the last round of the pass before has to be read first
    starts: Places | None = None  # of new worker processes, for the pass that has begun
    _place = -1, 0  # the pass, and how many batches of it were taken

    @property
    def number(self) -> int:
        return self._place[0]

    @property
    def num_taken(self) -> int:
        return self._place[1]

    @property
    def is_left(self) -> bool:
        """Whether a limit has ended the pass, if it is over; not the end of the dataset."""
        return self.is_limited and not self.is_over and self.num_taken > 0

    def takes(self, state: Mapping[str, Any]) -> bool:
        """Whether a state is of such a position."""
        return True

    def leave(self, first: int) -> Left | None:
        """Return where the pass was left, if that changes how the next one begins."""
        return None

    def begin(self, number: int, first: int) -> int:
        """Begin a pass at batch `first`; return how many batches have to be read again."""
        raise NotImplementedError

    def return_to(self, left: Left) -> None:
        """Let the dataset be before the last round of a pass that was left."""

    def receive(self, delivered: Delivered) -> None:
        """Follow what the process that reads has sent."""

    def read(self) -> Any:
        """Return the state of the dataset after the batch that was read."""

    def took(self, number: int, at: int, batch: Any, state: Any, is_over: bool) -> None:
        """Take note of a batch that is given, and of the state after it."""

    def end(self) -> None:
        """Take note that the pass was read to its end, and all of it given."""

    def state_dict(self) -> dict[str, Any]:
        raise NotImplementedError

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state. Raises IncompatibleState."""
        raise NotImplementedError


class DirectPosition(StreamPosition):
    """The state of a dataset, at the boundary of a batch.

    Where the loop over the batches encloses another one that is stopped, a resume needs the batch
    of the iteration once more: so the state `before` it is saved, too.

    After a pass that a limit has ended, the dataset begins anew. As it does so only where it was
    iterated before, a resume reads the last round of that pass first.
    """

    def __init__(self, name: str, dataset: StatefulDataset) -> None:
        self._name, self._dataset = name, dataset
        self._before: Any = None  # the newest batch was taken
        self._loaded: Any = None  # until the dataset has continued from it
        self._now: Any = None  # after the newest batch
        self._has_taken = False

    def takes(self, state: Mapping[str, Any]) -> bool:
        return "now" in state and "workers" not in state

    def begin(self, number: int, first: int) -> int:
        """Begin a pass at batch `first`; return how many batches have to be read again."""
        if (number, first + 1) == self._place:
            self._loaded = self._before
            self._dataset.load_state_dict(copy.deepcopy(self._before))
            self.is_over = False
        elif first and (number, first) != self._place:
            raise IncompatibleState(f"{self._name} is at {self._place}, not at {(number, first)}")
        elif not first and self.left is not None:
            pass  # the dataset begins anew
        elif self.looks_ahead and self._is_within and not first:  # what was read ahead is undone
            self._dataset.load_state_dict(copy.deepcopy(self._now))
        if not first:
            self.is_over = False
        self._now = copy.deepcopy(self._current())
        self._place = number, first
        self.reads_left = not first and self.left is not None and self._loaded is not None
        return 0

    def return_to(self, left: Left) -> None:
        self._dataset.load_state_dict(copy.deepcopy(left.state))

    def leave(self, first: int) -> Left | None:
        """Return where the pass was left, if its last round had the batches from `first` on."""
        return Left(self.number, first, self._before) if self.is_left else None

    def read(self) -> Any:
        return copy.deepcopy(self._dataset.state_dict())

    def took(self, number: int, at: int, batch: Any, state: Any, is_over: bool) -> None:
        """Take note of a batch that is given, and of the state after it."""
        self._before, self._loaded, self._has_taken = self._now, None, True
        self.is_over, self._now = is_over, state
        self._place = number, at + 1

    def state_dict(self) -> dict[str, Any]:
        number, taken = self._place
        found = {
            "pass": number, "taken": taken, "is_over": self.is_over,
            "now": self._current(), "before": self._before,
        }  # fmt: skip
        return found | ({} if self.left is None else {"left": self.left._asdict()})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the dataset continue from a state; not again where it has done so on the way."""
        if self._has_taken:
            return
        self._place = place_in(self._name, state)
        self._before, self._loaded = state["before"], state["now"]
        self.left = Left(**state["left"]) if "left" in state else None
        self.is_over = bool(state["is_over"])
        self._dataset.load_state_dict(copy.deepcopy(self._loaded))

    @property
    def _is_within(self) -> bool:
        """Whether a pass was left before its end, in this attempt."""
        return self._has_taken and not self.is_over

    def _current(self) -> Any:
        if self._loaded is not None:
            return self._loaded
        is_ahead = self.looks_ahead and self._place[0] >= 0
        return self._now if is_ahead else self._dataset.state_dict()


class ReadAgain(StreamPosition):
    """No state but a fingerprint of the newest batch: whether reading again has led to it."""

    uncertain = (
        "the loader has no state, so a resume reads its batches again; allowed: a dataset with "
        "state_dict and load_state_dict (other than those of Hugging Face)"
    )
    is_direct = False

    def __init__(self, name: str) -> None:
        self._name = name
        self._fingerprint = ""
        self._expected: tuple[tuple[int, int], str] | None = None

    def begin(self, number: int, first: int) -> int:
        """Return how many batches of the pass have to be read again: all before the first.

        They are fewer than the ranks of before have had, if these have repeated the last one.
        """
        if number == self._place[0]:
            first = min(first, self._place[1])
        if first:
            self.note = f"{first} batches were read again"
            log.warning(
                "loader %r reads %d batches again; a dataset with state_dict and load_state_dict "
                "continues at once", self._name, first,
            )  # fmt: skip
        return first

    def took(self, number: int, at: int, batch: Any, state: Any, is_over: bool) -> None:
        self._place, self._fingerprint = (number, at + 1), fingerprint(batch)
        if self._expected is None or self._expected[0] != self._place:
            return
        if self._expected[1] != self._fingerprint:
            self.problem = f"batch {at} of pass {number} differs from that before the stop"
            log.warning("loader %r is not exact: %s", self._name, self.problem)

    def state_dict(self) -> dict[str, Any]:
        number, taken = self._place
        return {"pass": number, "taken": taken, "fingerprint": self._fingerprint}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._place = place_in(self._name, state)
        # None: of a dataset's own state, or another batch with another number of ranks
        saved = state.get("fingerprint")
        self._fingerprint = str(saved or "")
        self._expected = None if saved is None else (self._place, self._fingerprint)


def fingerprint(batch: Any) -> str:
    """Return a digest of the first 4 KiB of each tensor in a batch, and of its plain values."""
    digest = hashlib.blake2b(digest_size=16)
    for each in _bytes_in(batch):
        digest.update(each)
    return digest.hexdigest()


def _bytes_in(value: Any) -> Iterator[bytes]:
    if isinstance(value, np.ndarray) and value.dtype != object:
        value = torch.from_numpy(value)
    if isinstance(value, Tensor):
        yield f"{value.dtype} {tuple(value.shape)}".encode()
        flat = value.detach().reshape(-1)[:SAMPLED_BYTES].cpu().contiguous()
        yield flat.view(torch.uint8)[:SAMPLED_BYTES].numpy().tobytes()
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield f"{name}".encode()
            yield from _bytes_in(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _bytes_in(each)
    elif isinstance(value, str | bytes | int | float | bool):
        yield repr(value).encode()


def place_in(name: str, state: Mapping[str, Any]) -> tuple[int, int]:
    try:
        return int(state["pass"]), int(state["taken"])
    except (KeyError, TypeError, ValueError) as error:
        raise IncompatibleState(f"the position of {name} cannot be read: {error!r}") from error
