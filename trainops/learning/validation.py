"""One validation under way, batch by batch."""

from typing import Protocol

from torch import Tensor

from trainops.learning.mean_metrics import MeanMetrics


class Validated(Protocol):
    """A model with examples to judge it by."""

    def new_mean_metrics(self) -> MeanMetrics:
        """Return means of the loss and each measure, over no examples yet."""

    def validation_batches(self) -> tuple[Tensor, ...]:
        """Return the indices of the validation examples by batches; () where there are none."""

    def validate(self, indices: Tensor, averages: MeanMetrics) -> None:
        """Add the loss and measures of these validation examples. Draws no random numbers."""


class Validation:
    """The means so far over the batches that are done. It is never saved: a resume begins anew."""

    def __init__(self, model: Validated) -> None:
        self.averages = model.new_mean_metrics()
        self.num_done = 0
        self._model, self._batches = model, model.validation_batches()

    @property
    def is_done(self) -> bool:
        return self.num_done == len(self._batches)

    @property
    def place(self) -> str:
        return f"batch {self.num_done} of {len(self._batches)} of the validation"

    def go_on(self, *, in_parts: bool) -> bool:
        """Measure the next batch, or all that are left; return whether that was the last."""
        while not self.is_done:
            self._model.validate(self._batches[self.num_done], self.averages)
            self.num_done += 1
            if in_parts:
                break
        return self.is_done
