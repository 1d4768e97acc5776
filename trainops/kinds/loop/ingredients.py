"""Ingredients over datasets: a training module made of what a recipe hands over."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from trainops.kinds.loop.module import (
    Extent,
    Optimizers,
    Schedule,
    TrainingModule,
    make_optimizer,
    make_schedule,
    module_loop,
)
from trainops.kinds.loop.passes import Passes
from trainops.kinds.loop.run import Loop, Run
from trainops.kinds.loop.settings import IngredientsParameters
from trainops.learning.ingredients import Context, DatasetIngredients
from trainops.learning.measures import is_metric
from trainops.runtime.errors import IncompatibleState, InputError

P = TypeVar("P", bound=IngredientsParameters)
OF_PARAMETERS = ("batch_size", "num_workers", "collate_fn")  # no options of a loader


def ingredients_loop(build: Callable[[P, Context], DatasetIngredients]) -> Loop:
    """Return the loop that trains what `build(parameters, context)` hands over."""

    def make(run: Run, parameters: P) -> IngredientsModule:
        made: object = build(parameters, Context(run.seed, run.inputs))
        if not isinstance(made, DatasetIngredients):
            problem = f"got {type(made).__name__} from {build.__module__}:{build.__qualname__}"
            raise InputError({"recipe": f"{problem}; allowed: DatasetIngredients"})
        return IngredientsModule(run, made, parameters)

    return module_loop(make)


class Constants:
    """Values measured on the data. A state with other values is refused."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self.values = dict(values)

    def state_dict(self) -> dict[str, Any]:
        return self.values

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state != self.values:
            differing = [
                name
                for name in {**state, **self.values}
                if name not in state or name not in self.values or state[name] != self.values[name]
            ]
            names = ", ".join(differing)
            raise IncompatibleState(f"the constants measured on the data differ: {names}")


class IngredientsModule(TrainingModule):
    """The model of the ingredients, trained by their loss on their datasets."""

    def __init__(
        self, run: Run, made: DatasetIngredients, parameters: IngredientsParameters
    ) -> None:
        super().__init__()
        self.model, self.made, self.settings = made.model, made, parameters
        metrics = _metrics_of(made)
        self._measures = {n: each for n, each in made.measures.items() if n not in metrics}
        # by numbers: a name of a measure may be none of a module
        self.metrics = nn.ModuleDict({str(n): each for n, each in enumerate(metrics.values())})
        self._metrics = metrics
        run.details |= made.description
        if made.constants:
            run.keep("constants", Constants(made.constants))

    def loaders(self, run: Run) -> dict[str, Passes]:
        made, settings = self.made, self.settings
        _require_options("train_options", made.train_options)
        _require_options("validation_options", made.validation_options)
        options: dict[str, Any] = {
            "batch_size": settings.batch_size, "num_workers": settings.num_workers,
            "collate_fn": made.collate_fn,
        }  # fmt: skip
        found = {"train": run.loader("train", made.train, **options, **made.train_options)}
        if made.validation is not None:
            options |= {"shuffle": False, **made.validation_options}
            found["validation"] = run.loader("validation", made.validation, **options)
        return found

    def optimizers(self) -> Optimizer:
        if self.made.optimizer is not None:
            return self.made.optimizer(self.model)
        return make_optimizer(self.settings.optimizer, self.model.parameters())

    def schedulers(self, optimizers: Optimizers, extent: Extent) -> Sequence[Schedule]:
        (optimizer,) = optimizers.values()
        if self.made.schedulers is None:
            return make_schedule(self.settings.schedule, optimizer, extent)
        return [
            Schedule(
                each, "validation", self.settings.schedule.metric, "parameters.schedule.metric"
            )
            if isinstance(each, ReduceLROnPlateau)
            else Schedule(each)
            for each in self.made.schedulers(optimizer, extent.steps)
        ]

    def training_step(self, batch: Any) -> dict[str, Tensor]:
        loss, measured = self._measured(*self._outputs(batch))
        factor = self.made.loss_factor
        shown = {"train_loss": loss.detach() * factor} if factor != 1 else {}
        return {"loss": loss, **shown} | {f"train_{n}": each for n, each in measured.items()}

    def validation_step(self, batch: Any) -> dict[str, Any]:
        outputs, targets = self._outputs(batch)
        loss, measured = self._measured(outputs, targets)
        for each in self._metrics.values():
            each.update(outputs, targets)
        shown = {f"val_{name}": each for name, each in {**measured, **self._metrics}.items()}
        return {"val_loss": loss * self.made.loss_factor, **shown}

    def _outputs(self, batch: Any) -> tuple[Any, Tensor]:
        """Return the outputs of the model, in float32 at least, and the targets."""
        *inputs, targets = _require_parts(batch)
        return _widened(self.model(*inputs)), targets

    def _measured(self, outputs: Any, targets: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss, and the mean of each measure over the batch."""
        with torch.no_grad():
            measures = self._measures.items()
            measured = {name: measure(outputs, targets).mean() for name, measure in measures}
        return self.made.loss(outputs, targets), measured


def _require_options(field: str, options: Mapping[str, Any]) -> None:
    if taken := [name for name in OF_PARAMETERS if name in options]:
        problem = f"got {', '.join(taken)} in {field}"
        allowed = "collate_fn of the ingredients, batch_size and num_workers of the parameters"
        raise InputError({"recipe": f"{problem}; allowed: {allowed}"})


def _metrics_of(made: DatasetIngredients) -> dict[str, Any]:
    """Return the measures that are metrics of torchmetrics. Raises InputError."""
    found = {name: each for name, each in made.measures.items() if is_metric(each)}
    for name, each in found.items():
        problem = f"got a {type(each).__name__} as the measure {name!r}"
        if isinstance(each, nn.ModuleDict):  # a MetricCollection
            allowed = "its metrics, each by a name: {**collection}"
            raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
        if made.validation is None:
            raise InputError({"recipe": f"{problem} without a validation; allowed: with one"})
    return found


def _require_parts(batch: Any) -> list[Any]:
    if not isinstance(batch, list | tuple) or len(batch) < 2:  # an input and a target
        problem = f"got a batch of type {type(batch).__name__}"
        allowed = "a list of the model's inputs and the targets; a collate_fn can make it"
        raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
    return list(batch)


def _widened(outputs: Any) -> Any:
    is_half = isinstance(outputs, Tensor) and outputs.dtype in (torch.bfloat16, torch.float16)
    return outputs.float() if is_half else outputs
