"""Batches of an iterable dataset, whose examples have an order and no index."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info

from trainops.kinds.loop.batches import Workers
from trainops.kinds.loop.examples import Collate, cannot_load, first_tensor
from trainops.kinds.loop.seeding import start_streams, streams_restored
from trainops.kinds.loop.stream_positions import DirectPosition, ReadAgain
from trainops.runtime.errors import IncompatibleState, InputError
from trainops.runtime.throughput import Throughput

log = logging.getLogger(__name__)
# Packages whose datasets have states without what a shuffle buffer has read ahead.
FORGETFUL = ("datasets",)


class Seeded(IterableDataset[Any]):
    """Begins each pass of a dataset as a function of the seed, the pass and the worker process."""

    def __init__(self, dataset: Any, seed: str, is_random: bool) -> None:
        self.dataset, self.seed, self.is_random = dataset, seed, is_random
        self.number = torch.zeros((), dtype=torch.int64).share_memory_()  # workers may persist
        self.has_ended = False  # the pass, within the batch that was taken last

    def __iter__(self) -> Iterator[Any]:
        number, worker = int(self.number), get_worker_info()
        if worker is not None and self.is_random:
            start_streams(f"{self.seed}/pass {number}/worker {worker.id}")
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(number)
        self.has_ended = False
        yield from self.dataset
        self.has_ended = True


def has_whole_state(dataset: object) -> bool:
    """Whether the dataset has a state from which it yields the examples that it would have."""
    has_state = hasattr(dataset, "state_dict") and hasattr(dataset, "load_state_dict")
    return has_state and type(dataset).__module__.partition(".")[0] not in FORGETFUL


class StreamBatches:
    """Batches of an iterable dataset; see `Run.loader`. A pass ends where the dataset does.

    Without worker processes, a batch draws random numbers by (seed, pass, number of the batch);
    a worker process draws by (seed, pass, its number).
    """

    def __init__(
        self,
        name: str,
        dataset: Any,
        *,
        seed: str,
        batch_size: int | None,
        drop_last: bool,
        workers: Workers,
        collate_fn: Collate | None,
        is_random: bool,
    ) -> None:
        workers.require(name, dataset, collate_fn)
        self.name, self._seed = name, seed
        self.throughput = Throughput()
        self._draws_here = is_random and workers.num_workers == 0
        self._seeded = Seeded(dataset, seed, is_random)
        self._loader = DataLoader(
            self._seeded,
            batch_size=batch_size,
            drop_last=drop_last and batch_size is not None,
            collate_fn=collate_fn or (None if batch_size is None else default_collate),
            generator=torch.Generator(),  # else one number of the global stream
            **workers.options(),
        )
        is_direct = has_whole_state(dataset) and workers.num_workers == 0
        self.position = DirectPosition(name, dataset) if is_direct else ReadAgain(name)
        self._looks_ahead, self._is_last = False, False
        if not is_direct:
            log.info("loader %r has no state: a resume reads the batches before it again", name)

    @property
    def uncertain(self) -> str:
        """Return why no resume is certain to be exact; "" for a dataset with a state."""
        return self.position.uncertain

    def look_ahead(self) -> None:
        """Read each batch before the one before it is given, so that the last one is known."""
        self._looks_ahead = self.position.looks_ahead = True

    @property
    def is_at_end(self) -> bool:
        """Whether the newest batch is the last one of its pass; with `look_ahead` only."""
        return self._is_last or self.position.is_over

    def length(self, number: int) -> None:
        return None

    def fixed_length(self) -> None:
        return None

    def items(self, number: int, first: int) -> Iterator[Any]:
        """Return the batches of a pass from batch `first` on; those to be read again are read now.

        Raises IncompatibleState where there are fewer than were taken.
        """
        self._is_last = False
        num_again = self.position.begin(number, first)
        batches = self._given(number, first - num_again)
        for at in range(num_again):
            if next(batches, self) is self:
                problem = f"the dataset {self.name!r} yields {at} batches in pass {number}"
                raise IncompatibleState(f"{problem}; {num_again} were taken before the stop")
        return batches

    def close(self) -> None:
        del self._loader, self._seeded  # the last references: worker processes and memory end

    def state_dict(self) -> dict[str, Any]:
        return self.position.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.position.load_state_dict(state)

    def _given(self, number: int, first: int) -> Iterator[Any]:
        """Return the batches from `first` on; the position follows what is given."""
        newest: tuple[int, Any, Any] | None = None  # read ahead: number, batch, state after it
        for at, batch in enumerate(self._batches(number, first), start=first):
            state = self.position.read()
            if not self._looks_ahead:
                self.position.took(number, at, batch, state, self._seeded.has_ended)
                yield batch
                continue
            if newest is not None:
                self.position.took(number, *newest, False)
                yield newest[1]
            newest = at, batch, state
        if newest is not None:
            at, batch, _ = newest
            self._is_last = True
            self.position.took(number, at, batch, self.position.read(), True)
            yield batch

    def _batches(self, number: int, first: int) -> Iterator[Any]:
        batches: Iterator[Any] | None = None
        if self.position.is_over:
            return
        try:
            for at in count(first):
                began_at = time.perf_counter()
                try:
                    with self._streams(number, at):
                        batches = self._opened(number) if batches is None else batches
                        batch = next(batches)
                except StopIteration:
                    break
                except Exception as error:
                    raise cannot_load(self.name, number, at, error) from error
                tensor = first_tensor(batch)
                num_loaded = None if tensor is None or not tensor.ndim else len(tensor)
                self.throughput.add(num_loaded, time.perf_counter() - began_at)
                yield batch
        finally:
            del batches  # ends its worker processes, also where a traceback refers to this frame
        if at == 0:
            problem = f"the dataset {self.name!r} yields no batch in pass {number}"
            allowed = "an iterable dataset that yields its examples in every pass"
            raise InputError({"recipe": f"{problem}; allowed: {allowed}"})

    def _opened(self, number: int) -> Iterator[Any]:
        self._seeded.number.fill_(number)
        return iter(self._loader)

    @contextmanager
    def _streams(self, number: int, at: int) -> Iterator[None]:
        if not self._draws_here:
            yield
            return
        with streams_restored():
            start_streams(f"{self._seed}/pass {number}/batch {at}")
            yield
