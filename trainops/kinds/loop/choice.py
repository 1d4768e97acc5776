"""The arguments of `Run.loader` that choose the order of a map-style dataset."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler

from trainops.kinds.loop.orders import (
    BatchOrder,
    ByLength,
    Cut,
    OwnBatches,
    OwnOrder,
    Plain,
    SamplerFunction,
    Weighted,
)
from trainops.kinds.loop.samplers import function_of
from trainops.runtime.errors import InputError

CHOICES = ("weights", "balance", "lengths", "sampler", "batch_sampler")


@dataclass(frozen=True)
class Choice:
    """Arguments that choose the order; at most one of those with the default None is given."""

    shuffle: bool = True
    weights: Sequence[float] | Tensor | None = None
    balance: Sequence[Hashable] | Tensor | None = None
    lengths: Sequence[int] | Tensor | None = None
    sampler: SamplerFunction | Iterable[Any] | None = None
    batch_sampler: SamplerFunction | Iterable[Any] | None = None
    num_samples: int | None = None

    def make(
        self, name: str, num_examples: int, seed: str, batch_size: int, drop_last: bool
    ) -> BatchOrder:
        """Return the order. Raises InputError for what does not fit together."""
        self._require_one(name)
        self._require_num_samples(name)
        if self.batch_sampler is not None:
            if batch_size != 1 or drop_last:
                problem = f"got batch_size {batch_size} and drop_last {drop_last} for {name!r}"
                raise InputError({"recipe": f"{problem}; allowed: neither with batch_sampler"})
            function = _function(name, self.batch_sampler, num_examples)
            return OwnBatches(name, function, num_examples, seed)
        cut = Cut(batch_size, drop_last)
        if self.sampler is not None:
            function = _function(name, self.sampler, num_examples)
            return OwnOrder(name, function, num_examples, seed, cut)
        if self.lengths is not None:
            _require_length(name, "lengths", self.lengths, num_examples)
            return ByLength(torch.as_tensor(self.lengths), self.shuffle, seed, cut)
        if (weights := self._weights(name, num_examples)) is not None:
            return Weighted(weights, self.num_samples or num_examples, seed, cut)
        return Plain(num_examples, self.shuffle, seed, cut)

    def given(self) -> list[str]:
        return [each for each in CHOICES if getattr(self, each) is not None]

    def _require_one(self, name: str) -> None:
        given = self.given()
        if len(given) > 1:
            problem = f"got {' and '.join(given)} for {name!r}"
            raise InputError({"recipe": f"{problem}; allowed: one of {', '.join(CHOICES)}"})
        if not self.shuffle and given not in ([], ["lengths"]):
            problem = f"got shuffle False and {given[0]} for {name!r}"
            raise InputError({"recipe": f"{problem}; allowed: shuffle False alone or with lengths"})

    def _require_num_samples(self, name: str) -> None:
        number = self.num_samples
        if number is not None and (self.given() not in (["weights"], ["balance"]) or number < 1):
            problem = f"got num_samples {number} for {name!r}"
            raise InputError({"recipe": f"{problem}; allowed: from 1, with weights or balance"})

    def _weights(self, name: str, num_examples: int) -> Tensor | None:
        if self.balance is not None:
            _require_length(name, "balance", self.balance, num_examples)
            labels = self.balance.tolist() if isinstance(self.balance, Tensor) else self.balance
            counts: dict[Hashable, int] = {}
            for label in labels:
                counts[label] = counts.get(label, 0) + 1
            return torch.tensor([1 / counts[label] for label in labels], dtype=torch.float64)
        if self.weights is None:
            return None
        _require_length(name, "weights", self.weights, num_examples)
        weights = torch.as_tensor(self.weights, dtype=torch.float64)
        if not (weights.isfinite().all() and (weights >= 0).all() and weights.any()):
            problem = f"got weights from {weights.min()} to {weights.max()} for {name!r}"
            raise InputError({"recipe": f"{problem}; allowed: finite, from 0, not all 0"})
        return weights


def _require_length(name: str, what: str, values: Any, num_examples: int) -> None:
    if len(values) != num_examples:
        problem = f"got {len(values)} {what} for {name!r}"
        raise InputError({"recipe": f"{problem}; allowed: {num_examples}, one for each example"})


def _function(
    name: str, sampler: SamplerFunction | Iterable[Any], num_examples: int
) -> SamplerFunction:
    """Return the function that gives the order of a pass. Raises InputError."""
    is_class = isinstance(sampler, type)
    if callable(sampler) and not is_class and not isinstance(sampler, Sampler):
        return sampler
    if hasattr(sampler, "__iter__") and not isinstance(sampler, Iterator) and not is_class:
        return function_of(name, sampler, num_examples)
    given = f"the class {sampler.__name__}" if isinstance(sampler, type) else None
    problem = f"got {given or f'a {type(sampler).__name__}'} as the sampler of {name!r}"
    allowed = "samplers of torch, and a function (seed, pass_number) that returns indices"
    raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
