"""Means over many batches that can be frozen in the middle."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


class MeanMetrics:
    """Sums in double precision, kept where the batches are, so that a GPU is not waited for."""

    def __init__(self, names: Sequence[str], device: torch.device) -> None:
        self.names = tuple(names)
        self.count = 0
        self.sums = torch.zeros(len(self.names), dtype=torch.float64, device=device)

    def add(self, sums: Sequence[Tensor], count: int) -> None:
        """Add the sums over `count` examples, one for each name."""
        self.sums += torch.stack([each.detach() for each in sums]).to(torch.float64)
        self.count += count

    def means(self) -> dict[str, float]:
        """Return the mean of each name; NaN where nothing was added."""
        totals = self.sums.tolist()
        return {
            name: total / self.count if self.count else math.nan
            for name, total in zip(self.names, totals, strict=True)
        }

    def reset(self) -> None:
        self.count = 0
        self.sums.zero_()

    def state_dict(self) -> dict[str, float]:
        """Return the count and the sums as plain values."""
        return {"count": self.count, **dict(zip(self.names, self.sums.tolist(), strict=True))}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Raises KeyError where a sum is missing, before anything changes."""
        sums = [float(state[name]) for name in self.names]
        self.count = int(state["count"])
        self.sums.copy_(torch.tensor(sums, dtype=torch.float64))
