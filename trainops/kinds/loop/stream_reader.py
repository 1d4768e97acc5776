"""Read batches of an iterable dataset, in the process of the run or in a worker process."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import torch
from torch.utils.data import IterableDataset, default_collate, default_convert, get_worker_info

from trainops.kinds.loop.examples import Collate
from trainops.kinds.loop.seeding import start_streams, streams_restored

T = TypeVar("T")
MAX_STATE_BYTES = 16 * 2**20  # which a worker process sends with each batch


class WorkerPlace(NamedTuple):
    """Where one process stands in a pass. `state` is that of its dataset; None: as it is."""

    state: bytes | None = None
    num_batches: int = 0
    is_over: bool = False


class Places(NamedTuple):
    """Where all worker processes stand, and whose batch is the next one."""

    workers: tuple[WorkerPlace, ...]
    turn: int = 0


class Delivered(NamedTuple):
    """A batch, and where the process stands after it.

    Without one: the process has ended its pass, or leaves the first turn to others.
    """

    worker: int
    place: WorkerPlace
    has_batch: bool = False
    batch: Any = None


class StreamReader(IterableDataset[Delivered]):
    """Batches of a dataset, whose random numbers follow from the seed, the pass and their number.

    In worker processes also from the number of the process; the number of the batch is its own.
    `has_state`: worker processes send the state of their dataset with each batch.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        batch_size: int | None,
        drop_last: bool,
        collate_fn: Collate | None,
        seed: str,
        is_random: bool,
        has_state: bool,
    ) -> None:
        self.dataset, self.seed, self.is_random = dataset, seed, is_random
        self._batch_size, self._drop_last, self._has_state = batch_size, drop_last, has_state
        self._collate = collate_fn or (default_convert if batch_size is None else default_collate)
        self._number = torch.zeros((), dtype=torch.int64).share_memory_()  # workers may persist
        self._first_pass, self._places = -1, Places(())

    def begin(self, number: int, places: Places | None) -> None:
        """Let the next iteration be of the pass with this number; new processes begin at places."""
        self._number.fill_(number)
        if places is not None:
            self._first_pass, self._places = number, places

    def __iter__(self) -> Iterator[Delivered]:
        number, info = int(self._number), get_worker_info()
        worker, place, turn = 0 if info is None else info.id, WorkerPlace(), 0
        if number == self._first_pass:
            place, turn = self._places.workers[worker], self._places.turn
        if place.state is not None:
            self.dataset.load_state_dict(pickle.loads(place.state))  # noqa: S301 - of this run
        if place.is_over:
            return
        if worker < turn:  # torch begins with process 0
            yield Delivered(worker, place)
        for batch, num_batches, is_over in self._batches(number, worker, place.num_batches):
            place = self._place(num_batches, is_over=is_over)
            yield Delivered(worker, place, True, batch)
        if info is not None and not place.is_over:
            yield Delivered(worker, self._place(place.num_batches, is_over=True))

    def _batches(self, number: int, worker: int, first: int) -> Iterator[tuple[Any, int, bool]]:
        """Return batches, the number of batches so far, and whether the dataset has ended in it."""
        examples: Iterator[Any] | None = None
        size, at, is_over = self._batch_size or 1, first, False
        while not is_over:
            with self._streams(number, worker, at):
                if examples is None:
                    examples = self._examples(number)
                found = list(islice(examples, size))
                if not found and not at:  # it has continued at the end of the pass before
                    examples = self._examples(number)
                    found = list(islice(examples, size))
                is_over = len(found) < size
                if not found or (is_over and self._drop_last):
                    return
                batch = self._collate(found if self._batch_size else found[0])
            at += 1
            yield batch, at, is_over

    def _examples(self, number: int) -> Iterator[Any]:
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(number)
        return iter(self.dataset)

    @contextmanager
    def _streams(self, number: int, worker: int, at: int) -> Iterator[None]:
        if not self.is_random:
            yield
            return
        of_worker = "" if get_worker_info() is None else f"/worker {worker}"
        with streams_restored():
            start_streams(f"{self.seed}/pass {number}{of_worker}/batch {at}")
            yield

    def _place(self, num_batches: int, *, is_over: bool) -> WorkerPlace:
        """Return where this process stands. Raises ValueError for a state that cannot be sent."""
        if not self._has_state or get_worker_info() is None:
            return WorkerPlace(None, num_batches, is_over)
        found = self.dataset.state_dict()
        what, allowed = "the state of the dataset", "tensors and plain values"
        try:
            state = pickle.dumps(found)
        except Exception as error:
            kind = type(error).__name__
            problem = f"{what} cannot be sent by a worker process ({kind}: {error})"
            raise ValueError(f"{problem}; allowed: {allowed}") from error
        if len(state) > MAX_STATE_BYTES:
            problem = f"{what} has {len(state)} bytes, which are sent with each batch"
            raise ValueError(f"{problem}; allowed: {MAX_STATE_BYTES}, or num_workers 0")
        return WorkerPlace(state, num_batches, is_over)


def as_it_is(delivered: T) -> T:
    """Stand in for the collate_fn of a DataLoader: `StreamReader` has done that."""
    return delivered
