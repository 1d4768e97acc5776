"""Batches of an iterable dataset, whose examples have an order and no index."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, count
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info

from trainops.kinds.loop.batches import Workers
from trainops.kinds.loop.examples import Collate, cannot_load, first_tensor
from trainops.kinds.loop.rank_streams import Dealt, Evened, Gather, agreed, deal
from trainops.kinds.loop.seeding import start_streams, streams_restored
from trainops.kinds.loop.stream_positions import DirectPosition, ReadAgain
from trainops.runtime.errors import IncompatibleState, InputError
from trainops.runtime.ranks import ALONE, Devices
from trainops.runtime.throughput import Throughput

T = TypeVar("T")
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


def ahead(items: Iterator[T], *, reads: bool) -> Iterator[tuple[T, bool]]:
    """Return each item, and if the next one is read before, whether it is the last."""
    if not reads:
        yield from ((each, False) for each in items)
        return
    for latest in items:
        for each in items:
            yield latest, False
            latest = each
        yield latest, True


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
        devices: Devices = ALONE,
        shards_itself: bool = False,
        gather: Gather | None = None,
    ) -> None:
        workers.require(name, dataset, collate_fn)
        self.name, self._seed = name, seed
        self._drop_last, self._devices, self._gather = drop_last, devices, gather
        self._dealing = ALONE if shards_itself else devices  # the ranks that share what is read
        self._evened: Evened | None = None
        if gather is not None and self._dealing is ALONE:
            self._evened = Evened(name, gather)
        self._num_items = 0  # given in the pass, with those that repeat another one
        self._shift = 0  # batches of the pass that other numbers of ranks have read in addition
        self.is_repeated = False  # the newest batch, because other ranks have more
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
        return self._ends_here() if self._evened is None else self._evened.is_last

    def length(self, number: int) -> None:
        return None

    def fixed_length(self) -> None:
        return None

    def numbers(self, number: int, at: int) -> range:
        """Return the numbers in the pass of the batches that the ranks have as item `at`.

        Those of ranks that repeat another batch are numbers beyond its end.
        """
        first = at * self._devices.num_ranks + self._shift
        return range(first, first + self._devices.num_ranks)

    def items(self, number: int, first: int) -> Iterator[Any]:
        """Return the batches of a pass from batch `first` on; those to be read again are read now.

        Raises IncompatibleState where there are fewer than were taken.
        """
        if not first:
            self._shift = 0
        if self._evened is not None:
            items = self._of_own(self._evened, number, first)
        else:
            items = self._read(number, first)
            if self._gather is not None:
                items = agreed(self.name, number, items, self._ends_here, self._gather)
        return self._counted(items, first)

    def _counted(self, items: Iterator[Dealt], first: int) -> Iterator[Any]:
        self._num_items = first
        for each in items:
            self._num_items, self.is_repeated = self._num_items + 1, not each.is_new
            yield each.batch

    def _of_own(self, evened: Evened, number: int, first: int) -> Iterator[Dealt]:
        """Return items of a dataset that shards itself; the latest batch is read again for them."""
        if not first:
            return evened.items(self._read(number, 0), None, self._ends_here)
        num_own, num_items = self.position.num_taken, self._num_items
        own = self._read(number, num_own - 1)
        latest = next(own)
        if num_items == num_own and first < num_items:  # the newest item once more is this batch
            return evened.items(chain([latest], own), None, self._ends_here)
        return evened.items(own, latest, self._ends_here)

    def _ends_here(self) -> bool:
        """Whether the newest batch is the last one that this rank reads; with `look_ahead` only."""
        return self._is_last or self.position.is_over

    def _read(self, number: int, first: int) -> Iterator[Dealt]:
        """Return what this rank has of the rounds from `first` on."""
        self._is_last = False
        num_again = self.position.begin(number, first)
        rounds = self._given(number, first - num_again)
        for at in range(num_again):
            if next(rounds, None) is None:
                problem = f"the dataset {self.name!r} yields {at} batches in pass {number}"
                raise IncompatibleState(f"{problem}; {num_again} were taken before the stop")
        return rounds

    def close(self) -> None:
        del self._loader, self._seeded  # the last references: worker processes and memory end

    def state_dict(self) -> dict[str, Any]:
        state = self.position.state_dict()
        if self._devices.num_ranks == 1:
            return state
        of_ranks = {"num_ranks": self._devices.num_ranks, "items": self._num_items}
        return state | of_ranks | {"shift": self._shift}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state. Raises IncompatibleState for shards of other numbers of ranks."""
        before, now = int(state.get("num_ranks", 1)), self._devices.num_ranks
        self._num_items = int(state.get("items", state.get("taken", 0)))
        self._shift = int(state.get("shift", 0))
        if before != now:
            if self._dealing is not self._devices:
                problem = f"the dataset {self.name!r} shards itself, and had {before} ranks"
                raise IncompatibleState(f"{problem}; now there are {now}; allowed: {before}")
            taken = int(state["taken"]) * before // now
            if self.position.is_direct:  # it continues between two rounds, if it has to
                self._shift += int(state["taken"]) * before - taken * now
            state = {**state, "taken": taken, "fingerprint": None}
        self.position.load_state_dict(state)

    def _given(self, number: int, first: int) -> Iterator[Dealt]:
        """Return the rounds from `first` on; the position follows what is given."""
        batches = self._batches(number, first * self._dealing.num_ranks + self._shift)
        rounds: Iterator[Dealt] = map(Dealt, batches)
        if self._dealing.num_ranks > 1:
            rounds = deal(batches, self._dealing, drop_last=self._drop_last)
        read = ((each, self.position.read(), self._seeded.has_ended) for each in rounds)
        known = ahead(read, reads=self._looks_ahead)
        for at, ((each, state, is_over), is_last) in enumerate(known, start=first):
            if is_last:
                self.position.took(number, at, each.batch, self.position.read(), True)
            else:
                self.position.took(number, at, each.batch, state, is_over and not self._looks_ahead)
            self._is_last = is_last
            yield each

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
                is_own = at % self._dealing.num_ranks == self._dealing.rank
                self.throughput.add(num_loaded if is_own else 0, time.perf_counter() - began_at)
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
