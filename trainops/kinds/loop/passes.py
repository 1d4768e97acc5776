"""Loops whose position is part of every checkpoint."""

from collections.abc import Iterator
from typing import Any

from trainops.kinds.loop.batches import MapBatches, PassSource
from trainops.kinds.loop.combined import CombinedBatches
from trainops.kinds.loop.course import Course
from trainops.kinds.loop.streams import StreamBatches


class Passes:
    """An iterable whose position is part of every checkpoint."""

    def __init__(self, course: Course, name: str, source: PassSource, dataset: Any = None) -> None:
        self._course, self.name, self.source = course, name, source
        self.dataset = dataset  # of a loader, as torch's DataLoader has it
        self.group = ""  # the loaders that this one is part of
        self.limit: int | None = None  # items of a pass, at most; of known lengths only

    def __len__(self) -> int:
        """Return the number of items of the first pass; it may be another in later ones."""
        length = self._length(0)
        if length is None:
            raise TypeError(f"the loop {self.name!r} has no length: its dataset is iterable")
        return length

    def _length(self, number: int) -> int | None:
        length = self.source.length(number)
        return length if length is None or self.limit is None else min(length, self.limit)

    @property
    def is_at_end(self) -> bool:
        """Whether the item that was taken is the last one of its pass."""
        counts = self._course.counts[self.name]
        if counts.length is None and isinstance(self.source, StreamBatches):
            return self.source.is_at_end
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
        items = self.source.items(counts.passes - 1, first)
        try:
            while True:
                course.head()
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
            course.leave(self.name)


class Steps:
    """The numbers from 0 to `number` - 1."""

    def __init__(self, number: int) -> None:
        self._number = number

    def length(self, number: int) -> int:
        return self._number

    def fixed_length(self) -> int:
        return self._number

    def items(self, number: int, first: int) -> Iterator[int]:
        return iter(range(first, self._number))
