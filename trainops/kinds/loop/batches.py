"""Batches of a map-style dataset: their order and random numbers follow from seed and position."""

import hashlib
import logging
import pickle
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from itertools import count
from typing import Any, Protocol, cast

import torch
from torch import multiprocessing
from torch.utils.data import DataLoader, TensorDataset, get_worker_info

from trainops.kinds.loop.examples import (
    Collate,
    LoadFailure,
    Loading,
    NumberedBatch,
    as_loaded,
    cannot_load,
)
from trainops.kinds.loop.orders import BatchIndices, BatchOrder, num_examples
from trainops.process.kinship import die_with
from trainops.runtime.errors import IncompatibleState, InputError
from trainops.runtime.ranks import ALONE, Devices
from trainops.runtime.throughput import Throughput

log = logging.getLogger(__name__)


class PassSource(Protocol):
    """What the passes of a loader consist of."""

    def length(self, number: int) -> int | None:
        """Return the number of items of the pass with this number; None if it is not known."""

    def fixed_length(self) -> int | None:
        """Return the number of items of every pass; None if passes differ."""

    def items(self, number: int, first: int) -> Iterator[Any]:
        """Return the items of that pass from item `first` on."""

    def examples(self, number: int, limit: int | None) -> list[int]:
        """Return of each map-style dataset the number of examples that the items of a pass follow
        from, of at most `limit` items; nothing where it is not known.
        """


@dataclass(frozen=True)
class Workers:
    """The worker processes of a loader, as torch's DataLoader has them."""

    num_workers: int = 0
    prefetch_factor: int | None = None
    persistent_workers: bool = False
    pin_memory: bool = False
    timeout: float = 0
    worker_init_fn: Callable[[int], object] | None = None

    def options(self) -> dict[str, Any]:
        """Return keyword arguments for a DataLoader. There is nothing to pin for without a GPU."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        begin = partial(begin_worker, self.worker_init_fn)
        is_pinned = self.pin_memory and torch.cuda.is_available()
        return given | {"pin_memory": is_pinned, "worker_init_fn": begin}

    def require(self, name: str, *sent: object) -> None:
        """Raise InputError unless they can work for this loader. `sent` goes to each of them."""
        factor = 1 if self.prefetch_factor is None else self.prefetch_factor
        if self.num_workers < 0 or self.timeout < 0 or factor < 1:
            problem = f"got {self} for {name!r}"
            raise InputError({"recipe": f"{problem}; allowed: num_workers and timeout from 0, "
                              "prefetch_factor from 1"})  # fmt: skip
        idle = [each for each in ("prefetch_factor", "persistent_workers", "timeout")
                if getattr(self, each)]  # fmt: skip
        if not self.num_workers and idle:
            problem = f"got num_workers 0 and {' and '.join(idle)} for {name!r}"
            raise InputError({"recipe": f"{problem}; allowed: with num_workers from 1"})
        if self.num_workers and multiprocessing.get_start_method() != "fork":
            _require_picklable(name, (*sent, self.worker_init_fn))


def begin_worker(function: Callable[[int], object] | None, number: int) -> None:
    """Call a worker_init_fn in a worker process, in which get_worker_info() has its dataset.

    The process ends with the one that it loads for. torch looks for that only after this function:
    where that one died earlier, the process would stay permanently, with its connections open.
    """
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid and multiprocessing.get_start_method() != "forkserver":
        die_with(parent.pid)
    info: Any = get_worker_info()
    object.__setattr__(info, "dataset", info.dataset.dataset)  # not what loads from it
    if function is not None:
        function(number)


def _require_picklable(name: str, sent: tuple[object, ...]) -> None:
    for each in sent:
        try:
            pickle.dumps(each)
        except Exception as error:
            method = multiprocessing.get_start_method()
            problem = f"{name!r} sends a {type(each).__name__} to worker processes ({method})"
            allowed = "what can be pickled: functions and classes of a module, no lambdas"
            raise InputError({"recipe": f"{problem}: {error}; allowed: {allowed}"}) from error


class PassBatches:
    """The batches of this process in a pass: the one place where an order becomes batches.

    Of N ranks, each takes every Nth batch. Where the last batches are fewer than ranks, the other
    ranks take batches from the beginning of the pass; `drop_last` leaves these batches out.

    An object of its own: DataLoader and worker processes end at once when the last reference to
    the loader does, which they would not within a cycle.
    """

    def __init__(
        self, order: BatchOrder, seed: str, *, drop_last: bool = False, devices: Devices = ALONE
    ) -> None:
        self._order, self._seed = order, seed
        self._drop_last, self._devices = drop_last, devices
        self._latest: tuple[int, BatchIndices] | None = None  # the pass, and its batches
        self.begin = 0, 0  # the pass, and its first batch, that the next iteration is of

    def length(self, number: int) -> int:
        """Return the number of batches of this rank, which is the same in all."""
        return self.fixed_length() or self._share(len(self._batches(number)))

    def fixed_length(self) -> int | None:
        """Return the number of batches of every pass; None if passes differ."""
        length = self._order.fixed_length()
        return None if length is None else self._share(length)

    def num_drawn(self) -> int | None:
        """Return the number of examples on which the order of every pass depends, if it does."""
        return self._order.num_drawn

    def examples(self, number: int, limit: int | None) -> int:
        """Return that number, or else that of the examples of the ranks in this pass."""
        if (drawn := self._order.num_drawn) is not None:
            return drawn
        batches, length = self._batches(number), self.length(number)
        items = length if limit is None else min(length, limit)
        return num_examples(batches, min(items * self._devices.num_ranks, len(batches)))

    def digest(self, number: int) -> int:
        """Return a digest of the order of a pass, which fits into int64."""
        digest = hashlib.blake2b(digest_size=7)
        for each in self._batches(number):
            digest.update(len(each).to_bytes(8, "little") + each.numpy().tobytes())
        return int.from_bytes(digest.digest())

    def numbers(self, number: int, at: int) -> range:
        """Return the numbers in the pass of the batches that the ranks have as item `at`."""
        num_ranks = self._devices.num_ranks
        return range(at * num_ranks, min((at + 1) * num_ranks, len(self._batches(number))))

    def __iter__(self) -> Iterator[NumberedBatch]:
        number, first = self.begin
        seed, batches = f"{self._seed}/pass {number}", self._batches(number)
        rank, num_ranks = self._devices.rank, self._devices.num_ranks
        end = self._share(len(batches)) * num_ranks
        for at in range(first * num_ranks + rank, end, num_ranks):
            indices = batches[at % len(batches)]
            yield NumberedBatch(indices.tolist(), seed, at, self._order.repeats)

    def num_examples(self, number: int, at: int) -> int:
        """Return the number of examples of batch `at` of this rank."""
        batches = self._batches(number)
        return len(batches[(at * self._devices.num_ranks + self._devices.rank) % len(batches)])

    def _share(self, num_batches: int) -> int:
        whole, rest = divmod(num_batches, self._devices.num_ranks)
        return whole + (rest > 0 and not self._drop_last)

    def _batches(self, number: int) -> BatchIndices:
        if self._latest is None or self._latest[0] != number:
            self._latest = None  # not in memory with the next one
            self._latest = number, self._order.batches(number)
        return self._latest[1]


class MapBatches:
    """Batches of a map-style dataset; see `Run.loader`."""

    def __init__(
        self,
        name: str,
        dataset: Any,
        order: BatchOrder,
        *,
        seed: str,
        workers: Workers,
        collate_fn: Collate | None,
        is_random: bool,
        skip_undecodable: bool,
        drop_last: bool = False,
        devices: Devices = ALONE,
        gather: Callable[[list[int]], list[list[int]]] | None = None,
    ) -> None:
        workers.require(name, dataset, collate_fn)
        self._gather = gather if order.fixed_length() is None else None
        self.name = name
        self._batches = PassBatches(order, seed, drop_last=drop_last, devices=devices)
        self._skips, self._rank = skip_undecodable, devices.rank
        self.throughput = Throughput()
        self._num_reported = 0  # examples of all ranks that could not be loaded
        self.num_unreported = 0  # those of this rank that were not added yet
        is_random = is_random and (type(dataset) is not TensorDataset or collate_fn is not None)
        self._loader = DataLoader(
            Loading(name, dataset, collate_fn, is_random),
            batch_sampler=self._batches,
            collate_fn=cast(Any, as_loaded),  # of what `Loading` returns for a batch
            generator=torch.Generator(),  # else one number of the global stream
            **workers.options(),
        )
        if not self.length(0):
            number = devices.num_ranks
            for_each = f" for each of {number} processes" if number > 1 else ""
            raise InputError({"recipe": f"the dataset {name!r} has no batch{for_each}"})

    def length(self, number: int) -> int:
        return self._batches.length(number)

    def fixed_length(self) -> int | None:
        return self._batches.fixed_length()

    def num_drawn(self) -> int | None:
        return self._batches.num_drawn()

    def examples(self, number: int, limit: int | None) -> list[int]:
        return [self._batches.examples(number, limit)]

    def numbers(self, number: int, at: int) -> range:
        return self._batches.numbers(number, at)

    def _require_same_order(self, number: int) -> None:
        """Raise InputError where a sampler or a function gives the ranks different orders."""
        if self._gather is None:
            return
        own = self._batches.digest(number)
        if any(each != [own] for each in self._gather([own])):
            problem = f"the ranks have different orders of {self.name!r} in pass {number}"
            allowed = "an order that follows from the seed and the pass, not from a set or a hash"
            raise InputError({"recipe": f"{problem}; allowed: {allowed}"})

    def items(self, number: int, first: int) -> Generator[Any, None, None]:
        self._require_same_order(number)
        self._batches.begin = number, first
        loaded = iter(self._loader)
        try:
            for at in count(first):
                began_at = time.perf_counter()
                try:
                    batch, failures = next(loaded)
                except StopIteration:
                    return
                except Exception as error:
                    has_workers = self._loader.num_workers > 0
                    raise cannot_load(
                        self.name, number, at, error, has_workers=has_workers
                    ) from error
                num_loaded = self._batches.num_examples(number, at) - len(failures)
                self.throughput.add(num_loaded, time.perf_counter() - began_at)
                if failures:
                    is_new = self._rank < len(self.numbers(number, at))
                    self._failed(batch, failures, is_new=is_new)
                yield batch
        finally:
            del loaded  # ends its worker processes, also where a traceback refers to this frame

    def close(self) -> None:
        del self._loader  # ends its worker processes, as nothing else refers to it

    def report(self, num_unreported: float) -> dict[str, float]:
        """Add what all ranks have not reported; return the count so far, if it has changed."""
        if not num_unreported:
            return {}
        self._num_reported, self.num_unreported = self._num_reported + int(num_unreported), 0
        return {f"{self.name}_undecodable": float(self._num_reported)}

    def state_dict(self) -> dict[str, int]:
        num_undecodable = self._num_reported + self.num_unreported
        counts = {"undecodable": num_undecodable, "reported": self._num_reported}
        return counts | {"rank": self._rank}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        try:
            self._num_reported = state["reported"]
            self.num_unreported = state["undecodable"] - self._num_reported
        except (KeyError, TypeError) as error:
            raise IncompatibleState(f"the counts of {self.name} cannot be read") from error
        if state.get("rank", 0) != self._rank:  # a further rank has that of rank 0
            self.num_unreported = 0

    def _failed(self, batch: Any, failures: list[LoadFailure], *, is_new: bool) -> None:
        """Skip examples; those of a batch that repeats another one for the ranks, unsaid."""
        if not self._skips or batch is None:
            raise InputError({"recipe": failures[0].what}) from ExampleFailed(failures[0].traceback)
        if not is_new:
            return
        for each in failures:
            log.warning("skipped: %s", each.what)
        self.num_unreported += len(failures)


class ExampleFailed(Exception):
    """Where a dataset raised, as its worker process reported it."""
