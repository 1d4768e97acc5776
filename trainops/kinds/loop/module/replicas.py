"""A module in the ranks of a run: each has a replica, with the same weights."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from torch import Tensor, nn

from trainops.kinds.loop.means import number_of
from trainops.kinds.loop.module.base import TrainingModule
from trainops.kinds.loop.replicas import Number, Replicas
from trainops.kinds.loop.run import Run
from trainops.runtime.errors import InputError

Metrics: TypeAlias = dict[str, Number]


class TrainingStep(nn.Module):
    """The training step of a module as a forward pass, which DistributedDataParallel can wrap."""

    def __init__(self, module: TrainingModule) -> None:
        super().__init__()
        self.module = module

    def forward(self, *arguments: Any) -> tuple[Tensor, Metrics]:
        """Return the loss, and the metrics without gradients. Raises InputError."""
        found = by_name(self.module.training_step(*arguments), "training_step")
        if not isinstance(found.get("loss"), Tensor):
            problem = f"training_step returned {', '.join(found) or 'nothing'}"
            raise InputError({"recipe": f"{problem}; allowed: a loss, or metrics with 'loss'"})
        given = "training_step returned"
        return found["loss"], {key: number_of(key, value, given) for key, value in found.items()}


def placed(run: Run, module: TrainingModule) -> TrainingModule:
    """Move a module to the device of this rank, which has its rows of it with `sharding: full`."""
    if run.is_sharded:  # each unit moves when it is divided
        steps = [name for name in ("training_step", "validation_step") if hasattr(module, name)]
        run.wrap(module, methods=steps)
        return module
    return module.to(run.device)


def replicas_of(run: Run, module: TrainingModule) -> Replicas:
    """Connect the replicas of a module; each rank must call it."""
    if run.is_sharded:  # `placed` has divided it
        return Replicas(run, module, TrainingStep(module))
    # Optimizers that take turns, and frozen parameters, leave others without a gradient.
    return Replicas(run, module, run.wrap(TrainingStep(module), find_unused_parameters=True))


def by_name(output: object, method: str) -> Mapping[str, Any]:
    """Return a step's metrics. Raises InputError for anything else."""
    if isinstance(output, Tensor):
        return {"loss": output}
    if not isinstance(output, Mapping):
        problem = f"{method} returned a {type(output).__name__}"
        raise InputError({"recipe": f"{problem}; allowed: a loss, or metrics by name"})
    return output
