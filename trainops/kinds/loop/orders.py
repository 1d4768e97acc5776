"""Which examples the batches of a pass hold: a function of the seed and the pass alone.

So a position in a pass is a number of batches, and going there reads nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from trainops.kinds.loop.seeding import generator_of, seed_of
from trainops.runtime.errors import InputError

BATCHES_PER_WINDOW = 100  # that are sorted by length together
SamplerFunction: TypeAlias = Callable[[int, int], Sequence[Any] | Tensor]


class BatchIndices(Protocol):
    """The batches of a pass, each the indices of its examples (int64)."""

    def __len__(self) -> int: ...
    def __getitem__(self, at: int, /) -> Tensor: ...
    def __iter__(self) -> Iterator[Tensor]: ...


class BatchOrder(Protocol):
    """The batches of every pass.

    `repeats`: an example may occur twice in one. `num_drawn`: the number of examples on which the
    order depends; None where further examples change nothing for those before them.
    """

    repeats: bool

    @property
    def num_drawn(self) -> int | None: ...

    def batches(self, number: int) -> BatchIndices:
        """Return the batches of the pass with this number."""

    def fixed_length(self) -> int | None:
        """Return the number of batches of every pass; None if passes differ."""


@dataclass(frozen=True)
class CutIndices:
    """Indices that are cut into a batch where it is asked for: all at once take far more memory."""

    indices: Tensor
    batch_size: int
    num_batches: int

    def __len__(self) -> int:
        return self.num_batches

    def __getitem__(self, at: int) -> Tensor:
        if not 0 <= at < self.num_batches:
            raise IndexError(at)
        return self.indices[at * self.batch_size : (at + 1) * self.batch_size]

    def __iter__(self) -> Iterator[Tensor]:
        return map(self.__getitem__, range(self.num_batches))

    def num_examples(self, num_batches: int) -> int:
        """Return the number of examples of the first batches."""
        return min(num_batches * self.batch_size, len(self.indices))


@dataclass(frozen=True)
class Cut:
    """How the order of a pass is cut into batches; the last one may be shorter."""

    batch_size: int
    drop_last: bool

    def batches(self, indices: Tensor) -> CutIndices:
        return CutIndices(indices, self.batch_size, self.length(len(indices)))

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

    def batches(self, number: int) -> BatchIndices:
        return self.cut.batches(_permutation(self.num_examples, self.shuffle, self.seed, number))

    @property
    def num_drawn(self) -> int | None:
        return self.num_examples if self.shuffle else None

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

    def batches(self, number: int) -> BatchIndices:
        generator = generator_of(f"{self.seed}/pass {number}/order")
        drawn = torch.rand(self.num_samples, dtype=torch.float64, generator=generator)
        sums = self.weights.cumsum(0)
        indices = torch.searchsorted(sums, drawn * sums[-1], right=True)
        last = int(self.weights.nonzero()[-1])  # a product may be rounded up to the whole sum
        return self.cut.batches(indices.clamp(max=last))

    @property
    def num_drawn(self) -> int:
        return len(self.weights)

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

    def batches(self, number: int) -> BatchIndices:
        order = _permutation(len(self.lengths), self.shuffle, self.seed, number)
        for window in order.split(BATCHES_PER_WINDOW * self.cut.batch_size):
            window.copy_(window[self.lengths[window].argsort(stable=True)])
        return self.cut.batches(self._shuffled(order, number) if self.shuffle else order)

    def _shuffled(self, indices: Tensor, number: int) -> Tensor:
        """Return them with their whole batches in another order."""
        num_whole = len(indices) // self.cut.batch_size
        drawn = torch.randperm(
            num_whole, generator=generator_of(f"{self.seed}/pass {number}/batches")
        )
        whole, rest = indices.tensor_split([num_whole * self.cut.batch_size])
        return torch.cat([whole.view(num_whole, self.cut.batch_size)[drawn].flatten(), rest])

    @property
    def num_drawn(self) -> int | None:
        return len(self.lengths) if self.shuffle else None

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
    num_drawn = None

    def batches(self, number: int) -> BatchIndices:
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
    num_drawn = None

    def batches(self, number: int) -> BatchIndices:
        return [
            _checked(self.name, batch, self.num_examples, number)
            for batch in self.function(seed_of(self.seed), number)
        ]

    def fixed_length(self) -> None:
        return None


def num_examples(batches: BatchIndices, num_batches: int) -> int:
    """Return the number of examples of the first batches of a pass."""
    if isinstance(batches, CutIndices):
        return batches.num_examples(num_batches)
    return sum(len(batches[at]) for at in range(num_batches))


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
