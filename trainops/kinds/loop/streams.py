"""Batches of an iterable dataset, whose examples have an order and no index."""

import logging
import time
from collections.abc import Generator, Iterator, Mapping
from itertools import chain, islice
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader

from trainops.kinds.loop.batches import Workers
from trainops.kinds.loop.counting import num_examples_of
from trainops.kinds.loop.examples import Collate, cannot_load
from trainops.kinds.loop.rank_streams import Dealt, Evened, Gather, agreed, deal
from trainops.kinds.loop.seeding import seed_of
from trainops.kinds.loop.stream_positions import (
    DirectPosition,
    Left,
    ReadAgain,
    StreamPosition,
)
from trainops.kinds.loop.stream_reader import (
    Delivered,
    Places,
    StreamReader,
    WorkerPlace,
    as_it_is,
)
from trainops.kinds.loop.worker_positions import WorkerPosition
from trainops.runtime.errors import IncompatibleState, InputError
from trainops.runtime.ranks import ALONE, Devices
from trainops.runtime.throughput import Throughput

T = TypeVar("T")
log = logging.getLogger(__name__)
# Packages whose datasets have states without what a shuffle buffer has read ahead.
FORGETFUL = ("datasets",)


def has_whole_state(dataset: object) -> bool:
    """Whether the dataset has a state from which it yields the examples that it would have."""
    has_state = hasattr(dataset, "state_dict") and hasattr(dataset, "load_state_dict")
    return has_state and type(dataset).__module__.partition(".")[0] not in FORGETFUL


def ahead(items: Iterator[T], *, reads: bool, most: int | None = None) -> Iterator[tuple[T, bool]]:
    """Return each item, and if the next one is read before, whether it is the last.

    Of more than `most` items, no further ones are read.
    """
    items = islice(items, most)
    if not reads:
        yield from ((each, False) for each in items)
        return
    for latest in items:
        for each in items:
            yield latest, False
            latest = each
            most = most and most - 1
        yield latest, most != 1


class StreamBatches:
    """Batches of an iterable dataset; see `Run.loader`. A pass ends where the dataset does.

    Without worker processes, a batch draws random numbers by (seed, pass, number of the batch);
    in a worker process by (seed, pass, number of the process, number of the batch in it).
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
        self.name, self._workers = name, workers
        self._limit: int | None = None  # rounds of a pass
        self._drop_last, self._devices, self._gather = drop_last, devices, gather
        self.shards_itself = shards_itself
        self._dealing = ALONE if shards_itself else devices  # the ranks that share what is read
        self._evened: Evened | None = None
        if gather is not None and self._dealing is ALONE:
            self._evened = Evened(name, gather)
        self._num_items = 0  # given in the pass, with those that repeat another one
        self._num_read = 0  # batches of the pass in them, of all ranks that share what is read
        self._shift = 0  # batches of the pass that other numbers of ranks have read in addition
        self._ranks_before = devices.num_ranks  # of the state that was loaded
        self.planned_ranks = devices.num_ranks  # that continue: more than one that only checks it
        self.is_repeated = False  # the newest batch, because other ranks have more
        self.throughput = Throughput()
        has_state = has_whole_state(dataset)
        self._reader = StreamReader(
            dataset, batch_size=batch_size, drop_last=drop_last, collate_fn=collate_fn,
            seed=seed, is_random=is_random, has_state=has_state,
        )  # fmt: skip
        self._generator = torch.Generator()  # else one number of the global stream
        self._loader = self._make_loader()
        self._own_position = self._make_position(dataset) if has_state else ReadAgain(name)
        self.position = self._own_position
        self._change = ""  # of what a checkpoint has a state for
        self._looks_ahead = self._is_last = self._has_ended = self._has_given = False
        if not has_state:
            log.info("loader %r has no state: a resume reads the batches before it again", name)

    def _make_position(self, dataset: Any) -> StreamPosition:
        if not self._workers.num_workers:
            return DirectPosition(self.name, dataset)
        persists = self._workers.persistent_workers
        return WorkerPosition(self.name, self._workers.num_workers, persists=persists)

    @property
    def note(self) -> str:
        """Return what a resume had to do; for the receipt."""
        return self.position.note

    @property
    def problem(self) -> str:
        """Return why a resume is not exact."""
        return self._change or self.position.problem

    @property
    def uncertain(self) -> str:
        """Return why no resume is certain to be exact; "" for a dataset with a state."""
        return self.position.uncertain

    def look_ahead(self) -> None:
        """Read each batch before the one before it is given, so that the last one is known."""
        self._looks_ahead = self._own_position.looks_ahead = True

    def limit_to(self, number: int) -> None:
        """Let a pass be over after a number of rounds: no more are read, and the next begins anew.

        Raises InputError where a resume could not return to that.
        """
        given = f"got a limit of {number} batches for {self.name!r}, whose dataset has a state"
        has_state = self._own_position.is_direct
        if has_state and self._workers.persistent_workers:
            problem = f"{given}, and persistent_workers"
            raise InputError({"recipe": f"{problem}; allowed: persistent_workers=False"})
        if has_state and not self._workers.num_workers and number == 1:
            raise InputError({"recipe": f"{given}; allowed: 2 or more, or a dataset without one"})
        self._limit = number
        self._own_position.is_limited = True

    @property
    def num_taken(self) -> int:
        """Batches of the newest pass that were given."""
        return self.position.num_taken

    @property
    def is_at_end(self) -> bool:
        """Whether the newest batch is the last one of its pass; with `look_ahead` only."""
        return self._ends_here() if self._evened is None else self._evened.is_last

    def length(self, number: int) -> None:
        return None

    def fixed_length(self) -> None:
        return None

    def examples(self, number: int, limit: int | None) -> list[int]:
        return []

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
            if number != self.position.number:
                num_before = max(0, self.position.num_taken - 1) * self._dealing.num_ranks
                self._own_position.left = self.position.leave(num_before + self._shift)
            self._shift, self.position = 0, self._own_position
        if self._evened is not None:
            items = self._of_own(self._evened, number, first)
        else:
            items = self._read(number, first)
            if self._gather is not None:
                items = agreed(self.name, number, items, self._ends_here, self._gather)
        return self._counted(items, first)

    def _read_left(self, left: Left) -> None:
        """Read the last round of a pass that a limit has ended."""
        self.position.return_to(left)
        batches = self._batches(left.number, left.first)
        next(self._rounds(batches), None)
        batches.close()

    def _counted(self, items: Iterator[Dealt], first: int) -> Iterator[Any]:
        self._num_items = first
        for each in items:
            self._num_items, self.is_repeated = self._num_items + 1, not each.is_new
            self._has_given = True
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
        self._require_same_round(number, first)
        num_again = self.position.begin(number, first)
        rounds = self._given(number, first if self.position.is_direct else 0)
        for at in range(num_again):
            if next(rounds, None) is None:
                problem = f"the dataset {self.name!r} yields {at} batches in pass {number}"
                raise IncompatibleState(f"{problem}; {num_again} were taken before the stop")
        return rounds

    def _require_same_round(self, number: int, first: int) -> None:
        """Raise IncompatibleState where the newest batches of other ranks are to be given again."""
        before, now = self._ranks_before, self.planned_ranks
        is_again = self.position.is_direct and 0 <= first < self.position.num_taken
        is_again = is_again and number == self.position.number
        if before != now and is_again and not self._has_given:
            where = f"within an iteration of the loop {self.name!r} over an iterable dataset"
            problem = f"the checkpoint is {where}, and of {before} processes; now there are {now}"
            raise IncompatibleState(f"{problem}; allowed: {before}, or another checkpoint")

    def close(self) -> None:
        del self._loader, self._reader  # the last references: worker processes and memory end

    def state_dict(self) -> dict[str, Any]:
        state = self.position.state_dict()
        if self._devices.num_ranks == 1 and not self._shift:
            return state
        of_ranks = {"num_ranks": self._devices.num_ranks, "items": self._num_items}
        return state | of_ranks | {"shift": self._shift, "read": self._num_read}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state. Raises IncompatibleState for shards of other numbers of ranks."""
        if self._has_given:  # on the way to this state
            return
        self.position = self._own_position
        if not self.position.takes(state):
            self.position = ReadAgain(self.name)
        if "now" in state and not self.position.is_direct:
            was = state.get("workers", 0)
            problem = f"the checkpoint has a state of the dataset for {was} worker processes"
            reason = f"which a loader with {self._workers.num_workers} cannot use"
            self._change = f"{problem}, {reason}; batches are read again"
        self._num_items = int(state.get("items", state.get("taken", 0)))
        self._num_read = int(state.get("read", state.get("taken", 0)))
        self._shift = int(state.get("shift", 0)) if self.position.is_direct else 0
        self.position.load_state_dict(self._rescaled(state))

    def _rescaled(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a state for this number of ranks; it may be between two of their rounds."""
        before, now = int(state.get("num_ranks", 1)), self._devices.num_ranks
        self._ranks_before = before
        if before == now:
            return state
        given = int(state["taken"]) * before
        if not self.position.is_direct:  # in the last round, ranks may have repeated a batch
            given = min(given, int(state.get("read", given)))
        taken = given // now
        if self.position.is_direct:
            self._shift += given - taken * now
        return {**state, "taken": taken, "fingerprint": None}

    def _given(self, number: int, first: int) -> Iterator[Dealt]:
        """Return the rounds from `first` on; the position follows what is given."""
        if self.position.reads_left and self.position.left is not None:
            self._read_left(self.position.left)
        self._num_read = first * self._dealing.num_ranks
        rounds = self._rounds(self._batches(number, self._num_read + self._shift))
        read = ((each, self.position.read(), self._has_ended) for each in rounds)
        known = ahead(read, reads=self._looks_ahead, most=self._limit and self._limit - first)
        for at, ((each, state, is_over), is_last) in enumerate(known, start=first):
            if is_last:
                self.position.took(number, at, each.batch, self.position.read(), True)
            else:
                self.position.took(number, at, each.batch, state, is_over and not self._looks_ahead)
            self._is_last = is_last
            self._num_read += each.num_batches
            yield each
        self.position.end()

    def _rounds(self, batches: Iterator[Any]) -> Iterator[Dealt]:
        if self._dealing.num_ranks > 1:
            return deal(batches, self._dealing, drop_last=self._drop_last)
        return map(Dealt, batches)

    def _batches(self, number: int, first: int) -> Generator[Any, None, None]:
        delivered: Iterator[Delivered] | None = None
        if self.position.is_over:
            return
        at, began_at = first, time.perf_counter()
        try:
            delivered = self._opened(number, first)
            while True:
                try:
                    each = next(delivered)
                except StopIteration:
                    self._has_ended = True
                    break
                except Exception as error:
                    has_workers = self._workers.num_workers > 0
                    raise cannot_load(
                        self.name, number, at, error, has_workers=has_workers
                    ) from error
                self.position.receive(each)
                if each.has_batch:
                    self._count(each.batch, at, time.perf_counter() - began_at)
                    at, self._has_ended = at + 1, each.place.is_over
                    yield each.batch
                    began_at = time.perf_counter()
        finally:
            del delivered  # ends its worker processes, also where a traceback refers to this frame
        if at == 0:
            problem = f"the dataset {self.name!r} yields no batch in pass {number}"
            allowed = "an iterable dataset that yields its examples in every pass"
            raise InputError({"recipe": f"{problem}; allowed: {allowed}"})

    def _count(self, batch: Any, at: int, seconds: float) -> None:
        """Count the examples of this rank's batches, and the time of all."""
        num_loaded = num_examples_of(batch)
        is_own = (at - self._shift) % self._dealing.num_ranks == self._dealing.rank
        self.throughput.add(num_loaded if is_own else 0, seconds)

    def _opened(self, number: int, first: int) -> Iterator[Delivered]:
        starts = self.position.starts
        if not self._workers.num_workers:
            starts = Places((WorkerPlace(num_batches=first),))
        elif starts is not None:
            self._loader = self._make_loader()  # persistent processes stand elsewhere
        self._reader.begin(number, starts)
        # torch draws the seeds of worker processes from it, for those that persist only once
        of_pass = "" if self._workers.persistent_workers else f"/pass {number}"
        self._generator.manual_seed(seed_of(f"{self._reader.seed}{of_pass}/workers"))
        return iter(self._loader)

    def _make_loader(self) -> DataLoader[Delivered]:
        return DataLoader(
            self._reader,
            batch_size=None,  # the reader makes batches
            collate_fn=as_it_is,
            generator=self._generator,
            **self._workers.options(),
        )
