"""Ingredients over datasets: a training module made of what a recipe hands over."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
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
from trainops.runtime.errors import IncompatibleState, InputError

P = TypeVar("P", bound=IngredientsParameters)
OF_PARAMETERS = ("batch_size", "num_workers", "collate_fn")  # no train_options


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
        run.details |= made.description
        if made.constants:
            run.keep("constants", Constants(made.constants))

    def loaders(self, run: Run) -> dict[str, Passes]:
        made, settings = self.made, self.settings
        if taken := [name for name in OF_PARAMETERS if name in made.train_options]:
            problem = f"got {', '.join(taken)} in train_options"
            allowed = "collate_fn of the ingredients, batch_size and num_workers of the parameters"
            raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
        options: dict[str, Any] = {
            "batch_size": settings.batch_size, "num_workers": settings.num_workers,
            "collate_fn": made.collate_fn,
        }  # fmt: skip
        found = {"train": run.loader("train", made.train, **options, **made.train_options)}
        if made.validation is not None:
            found["validation"] = run.loader(
                "validation", made.validation, shuffle=False, **options
            )
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
            Schedule(each, "validation", self.settings.schedule.metric)
            if isinstance(each, ReduceLROnPlateau)
            else Schedule(each)
            for each in self.made.schedulers(optimizer, extent.steps)
        ]

    def training_step(self, batch: Any) -> dict[str, Tensor]:
        loss, measured = self._measured(batch)
        factor = self.made.loss_factor
        shown = {"train_loss": loss.detach() * factor} if factor != 1 else {}
        return {"loss": loss, **shown} | {f"train_{n}": each for n, each in measured.items()}

    def validation_step(self, batch: Any) -> dict[str, Tensor]:
        loss, measured = self._measured(batch)
        shown = {f"val_{name}": each for name, each in measured.items()}
        return {"val_loss": loss * self.made.loss_factor, **shown}

    def _measured(self, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss, and the mean of each measure, of the outputs in float32 at least."""
        *inputs, targets = _require_parts(batch)
        outputs = _widened(self.model(*inputs))
        with torch.no_grad():
            measures = self.made.measures.items()
            measured = {name: measure(outputs, targets).mean() for name, measure in measures}
        return self.made.loss(outputs, targets), measured


def _require_parts(batch: Any) -> list[Any]:
    if not isinstance(batch, list | tuple) or len(batch) < 2:  # an input and a target
        problem = f"got a batch of type {type(batch).__name__}"
        allowed = "a list of the model's inputs and the targets; a collate_fn can make it"
        raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
    return list(batch)


def _widened(outputs: Any) -> Any:
    is_half = isinstance(outputs, Tensor) and outputs.dtype in (torch.bfloat16, torch.float16)
    return outputs.float() if is_half else outputs
