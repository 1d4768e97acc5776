"""Batches of an iterable dataset for several ranks, which have equally many in a pass.

Each rank iterates a dataset object of its own. By default every rank reads the same batches and
takes every Nth; of a dataset that shards itself, each takes all that it reads.
"""

import copy
import logging
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, NamedTuple, TypeAlias

from trainops.kinds.loop.stream_positions import fingerprint
from trainops.runtime.errors import InputError
from trainops.runtime.ranks import Devices

log = logging.getLogger(__name__)
Gather: TypeAlias = Callable[[list[int]], list[list[int]]]  # numbers of each rank, as many
SAME = "a dataset that yields the same examples in every rank, or shards_itself=True"


class Dealt(NamedTuple):
    """What a rank has of a round, which is one batch for each rank."""

    batch: Any
    is_new: bool = True  # else it repeats an earlier batch, because the pass has no more
    num_batches: int = 1  # of the round
    mark: int = 0  # a digest of the first batch of the round; 0: the ranks have rounds of their own


def deal(batches: Iterator[Any], devices: Devices, *, drop_last: bool) -> Iterator[Dealt]:
    """Deal batches to the ranks in turn; return what this rank has of each round.

    If fewer batches than ranks are left, the other ranks repeat the last one; `drop_last` leaves
    these batches out.
    """
    num_ranks, rank = devices.num_ranks, devices.rank
    while True:
        own, mark, num = None, 0, 0
        for batch in islice(batches, num_ranks):
            if not num:
                mark = _mark(batch)
            if num <= rank:
                own = batch
            num += 1
        if not num or (drop_last and num < num_ranks):
            return
        yield Dealt(own, rank < num, num, mark)


def agreed(
    name: str, number: int, rounds: Iterator[Dealt], is_last: Callable[[], bool], gather: Gather
) -> Iterator[Dealt]:
    """Return the rounds that `deal` has dealt, which are the same in all ranks. Raises InputError.

    `is_last`: whether the latest round is known to be the last one of the pass.
    """
    for at, each in enumerate(chain(rounds, [None])):
        own = [0, 0, 1] if each is None else [each.num_batches, each.mark, is_last()]
        for rank, other in enumerate(gather(own)):
            if other != own:
                problem = f"rank {rank} reads other examples of {name!r} than another rank"
                where = f"in pass {number}, in its batch {at} of this attempt"
                raise InputError({"recipe": f"{problem} {where}; allowed: {SAME}"})
        if each is None:
            return
        yield each


class Evened:
    """Batches of ranks that have datasets of their own: a pass ends when all have ended.

    A rank that has ended earlier repeats its last batch.
    """

    def __init__(self, name: str, gather: Gather) -> None:
        self._name, self._gather = name, gather
        self.is_last = False  # the latest item is known to be the last one of all ranks
        self._is_compared = False

    def items(
        self, own: Iterator[Dealt], latest: Dealt | None, is_last: Callable[[], bool]
    ) -> Iterator[Dealt]:
        """Return items for this rank; `latest` is the batch before them.

        `is_last`: whether the newest batch is known to be the last one of this rank.
        """
        while True:
            each = next(own, None)
            has_more = [each is not None, each is not None and not is_last()]
            rows = self._gather([*map(int, has_more), self._first_mark(each)])
            if not any(row[0] for row in rows):
                return
            self.is_last = not any(row[1] for row in rows)
            self._compare([row[2] for row in rows])
            if each is not None:
                latest = copy.deepcopy(each)  # the loop may change what it is given
            elif latest is not None:
                each = copy.deepcopy(latest)._replace(is_new=False)
            else:  # an empty pass raises before
                raise RuntimeError(f"{self._name} has ended before its first batch")
            yield each

    def _first_mark(self, each: Dealt | None) -> int:
        return 0 if each is None or self._is_compared else _mark(each.batch)

    def _compare(self, marks: list[int]) -> None:
        """Warn where all ranks begin with the same batch: the dataset may not shard itself."""
        if not self._is_compared and len(set(marks)) == 1:
            log.warning(
                "all ranks read the same first batch of %r, which is to shard itself", self._name
            )
        self._is_compared = True


def _mark(batch: Any) -> int:
    return int(fingerprint(batch)[:15], 16)  # fits into int64
