"""Loops whose position is part of every checkpoint."""

from collections.abc import Iterator
from typing import Any

from trainops.kinds.loop.batches import MapBatches, PassSource
from trainops.kinds.loop.combined import CombinedBatches
from trainops.kinds.loop.course import Course
from trainops.kinds.loop.streams import StreamBatches
from trainops.runtime.errors import IncompatibleState


class Passes:
    """An iterable whose position is part of every checkpoint."""

    def __init__(self, course: Course, name: str, source: PassSource, dataset: Any = None) -> None:
        self._course, self.name, self.source = course, name, source
        self.dataset = dataset  # of a loader, as torch's DataLoader has it
        self.group = ""  # the loaders that this one is part of
        self.has_batch_sampler = False  # a batch sampler of the loader makes the batches
        self._limit: int | None = None  # items of a pass, at most
        self.examples: list[int] = []  # that the latest pass follows from, where that is known

    def __len__(self) -> int:
        """Return the number of items of the first pass; it may be another in later ones."""
        length = self._length(0)
        if length is None:
            raise TypeError(f"the loop {self.name!r} has no length: its dataset is iterable")
        return length

    def _length(self, number: int) -> int | None:
        length = self.source.length(number)
        if length is None or self._limit is None:
            return self._limit if length is None else length
        return min(length, self._limit)

    def require_length(self, passes: int, length: int | None) -> None:
        """Raise IncompatibleState unless the latest pass, of this number, had this length."""
        if not passes or length is None:
            return
        if (now := self._length(passes - 1)) != length:
            had = f"a pass of the loader {self.name!r} had {length} batches"
            allowed = f"the data and the batch size that give {length}, or a warm start"
            raise IncompatibleState(f"{had}; now it has {now}; allowed: {allowed}")

    def require_examples(self, passes: int, examples: list[int]) -> None:
        """Raise IncompatibleState unless the latest pass, of this number, had these examples.

        As many batches may consist of other examples, in another order.
        """
        now = self.source.examples(passes - 1, self._limit) if passes else []
        if now and examples and now != examples:
            had, has = (" and ".join(map(str, each)) for each in (examples, now))
            problem = f"the loader {self.name!r} had {had} examples; now it has {has}"
            allowed = f"the data that give {had}, or a warm start"
            raise IncompatibleState(f"{problem}; allowed: {allowed}")

    def limit_to(self, number: int | None) -> None:
        """Let a pass be over after a number of items. Raises InputError."""
        self._limit = number
        if number is not None and isinstance(self.source, StreamBatches):
            self.source.limit_to(number)

    def _is_beyond(self, first: int) -> bool:
        """Whether more batches than the limit were taken, by another number of ranks."""
        if not isinstance(self.source, StreamBatches) or first != self._limit:
            return False
        return self.source.num_taken > first

    @property
    def is_at_end(self) -> bool:
        """Whether the item that was taken is the last one of its pass."""
        counts = self._course.counts[self.name]
        if isinstance(self.source, StreamBatches) and self.source.is_at_end:
            return True
        return counts.taken == counts.length

    @property
    def num_taken(self) -> int:
        """Items of the current pass that were taken, by each rank."""
        return self._course.counts[self.name].taken

    def look_ahead(self) -> None:
        """Let `is_at_end` be known of an iterable dataset: batches are read one ahead."""
        if isinstance(self.source, StreamBatches):
            self.source.look_ahead()

    @property
    def numbers(self) -> range:
        """Numbers in the pass of the batches that the ranks have taken last, of rank 0 first.

        They are fewer than ranks where other ranks repeat batches from the beginning of the pass.
        """
        counts = self._course.counts[self.name]
        at = counts.taken - 1
        if isinstance(self.source, MapBatches | CombinedBatches | StreamBatches):
            return self.source.numbers(counts.passes - 1, at)
        return range(at, at + 1)

    @property
    def is_of_other_ranks(self) -> bool:
        """Whether another number of ranks has taken the first batches of the pass."""
        counts = self._course.counts.get(self.name)  # of a loop that has begun
        return counts is not None and counts.counted > 0

    def is_counted(self, rank: int) -> bool:
        """Whether the batch of a rank is one that no rank has had in this pass, also before a fork.

        It is none where ranks repeat the beginning of a pass, or the end of an iterable dataset.
        """
        if self.is_repeated or rank >= len(self.numbers):
            return False
        return self.numbers[rank] >= self._course.counts[self.name].counted

    @property
    def is_repeated(self) -> bool:
        """Whether the batch of an iterable dataset repeats another one, for the sake of ranks."""
        return isinstance(self.source, StreamBatches) and self.source.is_repeated

    def __iter__(self) -> Iterator[Any]:
        if self.group:
            raise ValueError(f"the loader {self.name!r} is part of the loaders {self.group!r}")
        course = self._course
        first = course.enter(self.name, self._length)
        if first is None:
            return
        counts = course.counts[self.name]
        number = counts.passes
        self.examples = self.source.examples(number - 1, self._limit)
        items = iter(()) if self._is_beyond(first) else self.source.items(number - 1, first)
        try:
            while True:
                course.head(self.name, number)
                if counts.taken == counts.length:
                    return
                try:
                    item = next(items)
                except StopIteration:
                    counts.latest_length = counts.taken
                    return
                course.take()
                yield item
        finally:
            course.leave(self.name, number)


class Steps:
    """The numbers from 0 to `number` - 1."""

    def __init__(self, number: int) -> None:
        self._number = number

    def length(self, number: int) -> int:
        return self._number

    def fixed_length(self) -> int:
        return self._number

    def examples(self, number: int, limit: int | None) -> list[int]:
        return []

    def items(self, number: int, first: int) -> Iterator[int]:
        return iter(range(first, self._number))
