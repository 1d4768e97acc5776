"""What a training recipe is made of. This is the page to read before writing one.

A recipe has two modules. One is light (no torch), so that the web process can read it:

    class Parameters(Strict):
        width: int = Field(16, ge=1, le=512, description="Hidden units")

    RECIPE = Recipe(name="wine", ..., build="my_recipes.wine_model:build")

The other builds the model and the examples:

    def build(parameters: Parameters, context: Context) -> Ingredients:
        inputs, targets = read_wines()
        train, validation = split(len(targets), 0.2, context.seed)
        return Ingredients(
            model=nn.Sequential(nn.Linear(13, parameters.width), nn.ReLU(), ...),
            train=Examples((inputs[train],), targets[train]),
            validation=Examples((inputs[validation],), targets[validation]),
            loss=nn.functional.cross_entropy,
            measures={"accuracy": accuracy},
        )

`examples/recipes` holds a whole one. Register it with TRAINOPS_RECIPES="my_recipes.wine:RECIPE" or
an entry point of the group "trainops.recipes". Random numbers may be drawn while building: the
streams are seeded before and part of every checkpoint, and so are generators that the ingredients
lead to. Shuffling, saving, resuming and metrics are not the recipe's business.

Data that do not fit into memory are handed over as `DatasetIngredients`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Dataset

from trainops.datasets.directory import Directory
from trainops.learning.measures import is_metric
from trainops.runtime.errors import InputError

Loss: TypeAlias = Callable[[Any, Tensor], Tensor]  # (outputs, targets) -> mean over the batch
Measure: TypeAlias = Callable[[Any, Tensor], Tensor]  # (outputs, targets) -> one value an example
MAX_NAMED = 10  # examples in a message


@dataclass(frozen=True, slots=True)
class Examples:
    """Tensors whose first dimension counts the examples; `inputs` are the model's arguments."""

    inputs: tuple[Tensor, ...]
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)

    def batch(self, indices: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return the inputs and targets of the examples at these indices, wherever these lie."""
        return tuple(_at(each, indices) for each in self.inputs), _at(self.targets, indices)

    def describe(self, indices: Tensor) -> str:
        """Name the examples at these indices, or those of them that are not finite themselves."""
        tensors = (*self.inputs, self.targets)
        bad = [
            index
            for index in indices.tolist()
            if not all(bool(torch.isfinite(each[index]).all()) for each in tensors)
        ]
        named = bad or indices.tolist()
        more = len(named) - MAX_NAMED
        numbers = ", ".join(map(str, named[:MAX_NAMED])) + (f" and {more} more" if more > 0 else "")
        return f"example{'s' * (len(named) > 1)} {numbers}" + (" not finite" if bad else "")

    def to(self, device: torch.device) -> "Examples":
        return Examples(tuple(each.to(device) for each in self.inputs), self.targets.to(device))


@dataclass(frozen=True, slots=True)
class Context:
    """What a build function is given beside its parameters.

    `constants` is what an earlier build returned as Ingredients.constants and a checkpoint kept;
    it is empty at a fresh start. What is there is to be used instead of being measured again.
    """

    seed: int
    inputs: Mapping[str, Path] = field(default_factory=dict)
    constants: Any = field(default_factory=dict)  # a dict, typed by the recipe that measured it

    def table(self, dataset_id: str) -> Path:
        """Return the Parquet file of an uploaded dataset. Raises InputError."""
        if dataset_id not in self.inputs:
            given = ", ".join(self.inputs) or "none"
            raise InputError(
                {"parameters.dataset": f"{dataset_id} was not given; available: {given}"}
            )
        return self.inputs[dataset_id]

    def directory(self, dataset_id: str) -> Directory:
        """Return a registered directory, verified: names, sizes and a sample of the digests.

        Raises InputError, which names the first files that differ.
        """
        return Directory.open(self.table(dataset_id), self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredients:
    """All that training needs from a recipe.

    loss: the mean over a batch; what is minimised.
    measures: further figures by name, one value an example; "accuracy" gives train_accuracy and
        val_accuracy.
    loss_factor: what turns the loss into the units that people read (a variance, where the
        targets were standardised).
    optimizers, schedulers: instead of those the config asks for; all of them step at every step,
        but for ReduceLROnPlateau, which goes by the monitored metric at the end of each epoch.
    constants: plain values measured on the training examples in order to prepare them; they are
        saved, and given back as Context.constants when training resumes.
    description: JSON-safe facts for the result (columns, classes).
    """

    model: nn.Module
    train: Examples
    validation: Examples | None
    loss: Loss
    measures: Mapping[str, Measure] = field(default_factory=dict)
    loss_factor: float = 1.0
    optimizers: Callable[[nn.Module], Sequence[Optimizer]] | None = None
    schedulers: Callable[[Sequence[Optimizer], int], Sequence[LRScheduler]] | None = None
    constants: Mapping[str, object] = field(default_factory=dict)
    description: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise InputError for a metric of torchmetrics: it has one value of all examples."""
        for name, measure in self.measures.items():
            if is_metric(measure):
                problem = f"got a {type(measure).__name__} of torchmetrics as the measure {name!r}"
                allowed = "functions with a value for each example, or DatasetIngredients"
                raise InputError({"recipe": f"{problem}; allowed: {allowed}"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetIngredients:
    """Ingredients over datasets, trained by `ingredients_loop` (docs/recipes.md).

    train, validation: datasets whose batches are (inputs..., targets): the arguments of the model,
        and what the loss compares its outputs with.
    collate_fn: makes such a batch from a list of examples; by default that of torch.
    train_options, validation_options: further options of the loaders of `train` and `validation`
        (docs/loaders.md), such as `sampler` and `persistent_workers`.
    optimizer, schedulers: instead of those of the parameters; schedules move at every step, but for
        ReduceLROnPlateau, which goes by the metric of the parameters' schedule. `schedulers` is
        given the number of steps; None where `train` is iterable.
    constants: plain values measured on the data; a resume that measures others is refused.
    measures: as of Ingredients, and metrics of torchmetrics, which a validation measures.
    loss, loss_factor, description: as of Ingredients.
    """

    model: nn.Module
    train: Dataset[Any]
    validation: Dataset[Any] | None
    loss: Loss
    measures: Mapping[str, Measure] = field(default_factory=dict)
    loss_factor: float = 1.0
    collate_fn: Callable[[list[Any]], Any] | None = None
    train_options: Mapping[str, Any] = field(default_factory=dict)
    validation_options: Mapping[str, Any] = field(default_factory=dict)
    optimizer: Callable[[nn.Module], Optimizer] | None = None
    schedulers: Callable[[Optimizer, int | None], Sequence[LRScheduler]] | None = None
    constants: Mapping[str, object] = field(default_factory=dict)
    description: Mapping[str, Any] = field(default_factory=dict)


def _at(values: Tensor, indices: Tensor) -> Tensor:
    """Return values[indices], in a fraction of the time for rows of many numbers."""
    found = values.index_select(0, indices.flatten().to(values.device))
    return found.view(*indices.shape, *values.shape[1:])


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return for each example 1.0 where the largest output is that of the target's class."""
    return (outputs.argmax(dim=1) == targets).to(torch.float32)
