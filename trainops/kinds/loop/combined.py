"""One loop over the batches of several loaders at once."""

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import repeat
from typing import Any, Literal, TypeAlias

from trainops.kinds.loop.batches import MapBatches
from trainops.runtime.errors import InputError

Mode: TypeAlias = Literal["min_size", "max_size", "max_size_cycle"]


class CombinedBatches:
    """A batch of each loader at a time, in the modes of Lightning's CombinedLoader.

    A pass ends with the shortest loader (`min_size`) or the longest; shorter ones begin anew
    (`max_size_cycle`), or give None (`max_size`). Where each loader stands follows from the number
    of items taken. `arrange` makes an item of the list of batches. Raises InputError for loaders
    whose passes have no known length.
    """

    def __init__(
        self,
        name: str,
        loaders: Sequence[object],
        mode: Mode,
        arrange: Callable[[list[Any]], Any],
        num_ranks: int,
    ) -> None:
        if not loaders:
            raise InputError({"recipe": f"{name!r} combines no loaders; allowed: one or more"})
        self._members: list[MapBatches] = []
        self._lengths: list[int] = []
        for each in loaders:
            length = each.fixed_length() if isinstance(each, MapBatches) else None
            if not isinstance(each, MapBatches) or length is None:
                is_map = isinstance(each, MapBatches)
                what = "a sampler of its own" if is_map else "an iterable dataset"
                problem = f"{name!r} combines loaders of which one has {what}"
                allowed = "map-style datasets, in order, shuffled or weighted"
                raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
            self._members.append(each)
            self._lengths.append(length)
        self._mode, self._arrange, self._num_ranks = mode, arrange, num_ranks

    def length(self, number: int) -> int:
        return self.fixed_length()

    def fixed_length(self) -> int:
        return (min if self._mode == "min_size" else max)(self._lengths)

    def numbers(self, number: int, at: int) -> range:
        """Return the numbers in the pass of the items that the ranks have as item `at`."""
        return range(at * self._num_ranks, (at + 1) * self._num_ranks)

    def examples(self, number: int, limit: int | None) -> list[int]:
        drawn = (each.num_drawn() for each in self._members)
        return [each for each in drawn if each is not None]

    def items(self, number: int, first: int) -> Iterator[Any]:
        batches = [self._batches(index, number, first) for index in range(len(self._members))]
        try:
            for _ in range(first, self.fixed_length()):
                yield self._arrange([next(each) for each in batches])
        finally:
            for each in batches:
                each.close()

    def _batches(self, index: int, number: int, first: int) -> Generator[Any, None, None]:
        """Return what a loader gives from item `first` on."""
        member, length = self._members[index], self._lengths[index]
        if self._mode == "max_size_cycle":
            num_passes = math.ceil(self.fixed_length() / length)
            of_pass, first = divmod(first, length)
            for each in range(number * num_passes + of_pass, (number + 1) * num_passes):
                yield from member.items(each, first)
                first = 0
        else:
            if first < length:
                yield from member.items(number, first)
            yield from repeat(None)
