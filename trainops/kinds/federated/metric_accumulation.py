"""Measuring what is trained without slowing it down: many batches' outputs at one go."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from trainops.learning.ingredients import Measure
from trainops.learning.mean_metrics import MeanMetrics

MOST_NUMBERS = 2**20  # of outputs that are kept before they are measured


class MetricAccumulator:
    """Outputs and targets of batches, measured when they are many, and added to means."""

    def __init__(self, measures: Mapping[str, Measure], sums: MeanMetrics) -> None:
        self._measures, self._sums = tuple(measures.values()), sums
        self._losses: list[Tensor] = []
        self._sizes: list[int] = []
        self._outputs: list[Tensor] = []
        self._targets: list[Tensor] = []
        self._num_numbers = 0

    def add(self, loss: Tensor, outputs: Any, targets: Tensor) -> None:
        """Add a batch: the mean of its loss, its outputs and targets."""
        self._losses.append(loss.detach())
        self._sizes.append(len(targets))
        if not isinstance(outputs, Tensor):
            self._flush([each(outputs, targets).sum() for each in self._measures])
            return
        self._outputs.append(outputs.detach())
        self._targets.append(targets)
        self._num_numbers += outputs.numel()
        if self._num_numbers > MOST_NUMBERS:
            self.finish()

    def finish(self) -> None:
        """Measure what has been gathered."""
        if self._outputs:
            outputs, targets = torch.cat(self._outputs), torch.cat(self._targets)
            with torch.no_grad():
                self._flush([each(outputs, targets).sum() for each in self._measures])

    def _flush(self, measured: list[Tensor]) -> None:
        losses = torch.stack(self._losses).to(torch.float64)
        sizes = torch.tensor(self._sizes, dtype=torch.float64, device=losses.device)
        self._sums.add([losses @ sizes, *(each.to(torch.float64) for each in measured)],
                       sum(self._sizes))  # fmt: skip
        self._losses, self._sizes = [], []
        self._outputs, self._targets, self._num_numbers = [], [], 0


class BatchedMetricAccumulator:
    """The same of n clients at once; `sums` (n, 1 + measures) are of their losses and measures."""

    def __init__(self, measures: Mapping[str, Measure], sums: Tensor) -> None:
        self._measures, self._sums = tuple(measures.values()), sums
        self._batches: list[tuple[Tensor, ...]] = []
        self._num_numbers = 0

    def add(self, losses: Tensor, outputs: Tensor, targets: Tensor, counts: Tensor) -> None:
        """Add a batch: (n, B, ...) each. `counts` is 0 for whom to leave out."""
        self._batches.append((losses, outputs, targets, counts))
        self._num_numbers += outputs.numel()
        if self._num_numbers > MOST_NUMBERS:
            self.finish()

    def finish(self) -> None:
        """Measure what has been gathered; all batches are of one size."""
        if self._batches:
            pieces = zip(*self._batches, strict=True)
            losses, outputs, targets, counted = (torch.stack(each) for each in pieces)
            flat = outputs.flatten(0, 2), targets.flatten(0, 2)  # the others are (S, n, B)
            measured = [losses, *(each(*flat).view_as(counted) for each in self._measures)]
            values = torch.stack(measured) * counted
            self._sums += values.sum(dim=(1, 3), dtype=torch.float64).T
            self._batches, self._num_numbers = [], 0
