"""Which examples the batches of a pass hold: a function of the seed and the pass alone.

So a position in a pass is a number of batches, and going there reads nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from trainops.kinds.loop.seeding import generator_of, seed_of
from trainops.runtime.errors import InputError

BATCHES_PER_WINDOW = 100  # that are sorted by length together
Batches: TypeAlias = Sequence[Tensor]  # indices of examples, int64
SamplerFunction: TypeAlias = Callable[[int, int], Sequence[Any] | Tensor]


class BatchOrder(Protocol):
    """The batches of every pass. `repeats`: an example may occur twice in one."""

    repeats: bool

    def batches(self, number: int) -> Batches:
        """Return the batches of the pass with this number."""

    def fixed_length(self) -> int | None:
        """Return the number of batches of every pass; None if passes differ."""


@dataclass(frozen=True)
class Cut:
    """How the order of a pass is cut into batches; the last one may be shorter."""

    batch_size: int
    drop_last: bool

    def batches(self, indices: Tensor) -> Batches:
        batches: Batches = indices.split(self.batch_size)
        return batches[: self.length(len(indices))]

    def length(self, num_indices: int) -> int:
        whole, rest = divmod(num_indices, self.batch_size)
        return whole + (rest > 0 and not self.drop_last)


@dataclass(frozen=True)
class Plain:
    """Every example once: a permutation of its own for each pass, or as the dataset has them."""

    num_examples: int
    shuffle: bool
    seed: str
    cut: Cut
    repeats = False

    def batches(self, number: int) -> Batches:
        return self.cut.batches(_permutation(self.num_examples, self.shuffle, self.seed, number))

    def fixed_length(self) -> int:
        return self.cut.length(self.num_examples)


@dataclass(frozen=True)
class Weighted:
    """Drawn with replacement, each example in proportion to its weight (float64)."""

    weights: Tensor
    num_samples: int
    seed: str
    cut: Cut
    repeats = True

    def batches(self, number: int) -> Batches:
        generator = generator_of(f"{self.seed}/pass {number}/order")
        drawn = torch.rand(self.num_samples, dtype=torch.float64, generator=generator)
        sums = self.weights.cumsum(0)
        indices = torch.searchsorted(sums, drawn * sums[-1], right=True)
        last = int(self.weights.nonzero()[-1])  # a product may be rounded up to the whole sum
        return self.cut.batches(indices.clamp(max=last))

    def fixed_length(self) -> int:
        return self.cut.length(self.num_samples)


@dataclass(frozen=True)
class ByLength:
    """Every example once, in batches of examples of similar length, so that padding is short.

    The order of a pass is cut into windows of 100 batches, and each window sorted by length. The
    batches of all windows are then shuffled; a shorter one stays the last.
    """

    lengths: Tensor
    shuffle: bool
    seed: str
    cut: Cut
    repeats = False

    def batches(self, number: int) -> Batches:
        order = _permutation(len(self.lengths), self.shuffle, self.seed, number)
        sorted_windows = [
            window[self.lengths[window].argsort(stable=True)]
            for window in order.split(BATCHES_PER_WINDOW * self.cut.batch_size)
        ]
        batches = self.cut.batches(torch.cat(sorted_windows)) if sorted_windows else ()
        if not self.shuffle:
            return batches
        num_whole = len(order) // self.cut.batch_size
        drawn = torch.randperm(
            num_whole, generator=generator_of(f"{self.seed}/pass {number}/batches")
        )
        return [batches[each] for each in drawn.tolist()] + list(batches[num_whole:])

    def fixed_length(self) -> int:
        return self.cut.length(len(self.lengths))


@dataclass(frozen=True)
class OwnOrder:
    """What a function returns for the seed and the number of the pass, cut into batches."""

    name: str
    function: SamplerFunction
    num_examples: int
    seed: str
    cut: Cut
    repeats = True

    def batches(self, number: int) -> Batches:
        indices = self.function(seed_of(self.seed), number)
        return self.cut.batches(_checked(self.name, indices, self.num_examples, number))

    def fixed_length(self) -> None:
        return None


@dataclass(frozen=True)
class OwnBatches:
    """The batches that a function returns for the seed and the number of the pass."""

    name: str
    function: SamplerFunction
    num_examples: int
    seed: str
    repeats = True

    def batches(self, number: int) -> Batches:
        return [
            _checked(self.name, batch, self.num_examples, number)
            for batch in self.function(seed_of(self.seed), number)
        ]

    def fixed_length(self) -> None:
        return None


def _permutation(num_examples: int, shuffle: bool, seed: str, number: int) -> Tensor:
    if not shuffle:
        return torch.arange(num_examples)
    return torch.randperm(num_examples, generator=generator_of(f"{seed}/pass {number}/order"))


def _checked(name: str, indices: Sequence[int] | Tensor, num_examples: int, number: int) -> Tensor:
    """Return indices that a function gave, as a tensor. Raises InputError."""
    try:
        found = torch.as_tensor(indices)
    except (TypeError, ValueError, RuntimeError):
        found = torch.tensor(0.0)
    where = f"from the sampler of {name!r} for pass {number}"
    is_integer = not (found.is_floating_point() or found.dtype is torch.bool)
    if found.ndim != 1 or not is_integer or not len(found):
        problem = f"got {indices!r:.80} {where}"
        raise InputError({"recipe": f"{problem}; allowed: a sequence of indices, not empty"})
    if not 0 <= int(found.min()) <= int(found.max()) < num_examples:
        problem = f"got indices from {found.min()} to {found.max()} {where}"
        raise InputError({"recipe": f"{problem}; allowed: 0 to {num_examples - 1}"})
    return found.long()
