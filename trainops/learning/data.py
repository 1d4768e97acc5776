"""In which order examples are seen: a function of the seed and the epoch, and of nothing else.

So a position in the data is a number, and going there costs the same wherever it is.
"""

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor


def order(seed: int, epoch: int, num_examples: int) -> Tensor:
    """Return the permutation (int64, on the CPU) in which this epoch sees the examples."""
    return torch.randperm(num_examples, generator=_generator(seed, f"epoch {epoch}"))


def split(num_examples: int, validation_fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return the sorted indices of the training and of the validation examples.

    There is at least one of each where there are two examples or more.
    """
    shuffled = torch.randperm(num_examples, generator=_generator(seed, "split"))
    num_validation = round(num_examples * validation_fraction)
    num_validation = min(max(num_validation, 1), max(num_examples - 1, 0))
    return shuffled[num_validation:].sort().values, shuffled[:num_validation].sort().values


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """How an epoch is cut into batches, and the batches into steps; the last of each is shorter."""

    num_examples: int
    batch_size: int
    batches_per_step: int  # gradient accumulation

    @property
    def batches_per_epoch(self) -> int:
        return -(-self.num_examples // self.batch_size)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.batches_per_epoch // self.batches_per_step)

    def batches(self, indices: Tensor, next_batch: int) -> tuple[Tensor, ...]:
        """Return the batches of the step that starts with this batch of the epoch's order."""
        first = next_batch * self.batch_size
        chosen = indices[first : first + self.batches_per_step * self.batch_size]
        batches: tuple[Tensor, ...] = chosen.split(self.batch_size)
        return batches


def _generator(seed: int, purpose: str) -> torch.Generator:
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest) % 2**63)
