"""The class of which a training module is made. This is the page to read before writing one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from torch import Tensor, nn
from torch.optim import Optimizer

from trainops.kinds.loop.module.batch import count_examples
from trainops.kinds.loop.module.optimization import Extent, Schedule
from trainops.kinds.loop.passes import Passes
from trainops.kinds.loop.run import Run

Optimizers: TypeAlias = Mapping[str, Optimizer]
Output: TypeAlias = Tensor | Mapping[str, Any]  # the loss, or metrics by name with "loss"


class TrainingModule(nn.Module):
    """Models as attributes, and what is done with a batch.

    A subclass is constructed with (run, parameters); it makes its models there. It has the methods
    loaders, optimizers, training_step, and validation_step if there is a loader "validation". All
    that changes while training is a parameter, a buffer, or part of `get_extra_state`.
    """

    # training_step(batch), or training_step(batch, NAME) where there are several optimizers:
    # returns the loss, or metrics of which "loss" is differentiated.
    training_step: Callable[..., Output]
    # validation_step(batch): returns the loss, or metrics; each is the mean of the batch.
    validation_step: Callable[[Any], Output]

    def loaders(self, run: Run) -> Mapping[str, Passes]:
        """Return the loaders "train" and, optionally, "validation", made by run.loader."""
        raise NotImplementedError  # a subclass without it is refused by name: requirements.py

    def optimizers(self) -> Optimizer | Optimizers:
        """Return one optimizer, or several by name."""
        raise NotImplementedError  # as loaders

    def schedulers(self, optimizers: Mapping[str, Optimizer], extent: Extent) -> Sequence[Schedule]:
        """Return the schedules; `optimizers` has the key "optimizer" where there is only one."""
        return []

    def turns(self, step: int, optimizers: Sequence[str]) -> Sequence[str]:
        """Return the names of the optimizers that step in this step, in order; by default all."""
        return optimizers

    def frozen(self, epoch: int) -> Sequence[str]:
        """Return prefixes of the names of parameters that are not trained in this epoch."""
        return ()

    def num_examples(self, batch: Any) -> int:
        """Return the number of examples, by which batches are weighted."""
        return count_examples(batch)
