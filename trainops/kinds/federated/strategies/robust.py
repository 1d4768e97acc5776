"""Aggregations that a few broken or hostile clients cannot carry away; all clients count alike.

Yin et al., "Byzantine-robust distributed learning" (2018): coordinate-wise median, trimmed mean.
"""

from torch import Tensor

from trainops.kinds.federated.limits import num_trimmed
from trainops.kinds.federated.strategies.strategy import FederatedStrategy


class Median(FederatedStrategy):
    def combine(self, updates: Tensor, weights: Tensor) -> Tensor:
        """Of an even number the mean of the two in the middle."""
        in_order, count = updates.sort(dim=0).values, len(updates)
        middle: Tensor = (in_order[(count - 1) // 2] + in_order[count // 2]) / 2
        return middle


class TrimmedMean(FederatedStrategy):
    def combine(self, updates: Tensor, weights: Tensor) -> Tensor:
        cut = num_trimmed(self.config.trim, len(updates))
        kept = updates.sort(dim=0).values[cut : len(updates) - cut]
        return kept.mean(dim=0)
