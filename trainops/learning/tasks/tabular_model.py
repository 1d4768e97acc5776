"""What the tabular recipe trains."""

from typing import NotRequired, TypedDict

import numpy as np
import torch
from torch import Tensor, nn

from trainops.learning.data import split
from trainops.learning.ingredients import (
    Context,
    Examples,
    Ingredients,
    Loss,
    Measure,
    accuracy,
)
from trainops.learning.tasks import tabular_table as tables
from trainops.learning.tasks.tabular import TabularParameters
from trainops.learning.tasks.tabular_table import Table, read_table

MAX_EMBEDDING = 16  # numbers that stand for one category


def build(parameters: TabularParameters, context: Context) -> Ingredients:
    """Raises InputError, which names the column."""
    table = read_table(context.table(parameters.dataset), parameters)
    return build_from(table, parameters, context)[0]


def build_from(
    table: Table, parameters: TabularParameters, context: Context
) -> tuple[Ingredients, Tensor]:
    """Return the ingredients of rows that were read, and which of them are trained on.

    Raises InputError, which names the column.
    """
    train, validation = split(len(table), parameters.validation_fraction, context.seed)
    constants: TableConstants = context.constants or _measure(table, parameters, train)
    inputs = _inputs(table, constants)
    targets = _targets(table, parameters, constants)
    ingredients = Ingredients(
        model=TableNetwork(constants, inputs[0].shape[1], parameters),
        train=Examples(tuple(each[train] for each in inputs), targets[train]),
        validation=Examples(tuple(each[validation] for each in inputs), targets[validation]),
        **_judgement(constants),
        constants=constants,
        description={
            "task": constants["task"],
            "target": parameters.target,
            "columns": [*constants["numbers"], *constants["categories"]],
            "classes": constants["classes"],
            "rows": len(table),
            "rows_without_target": table.rows_without_target,
            "training_rows": len(train),
            "validation_rows": len(validation),
        },
    )
    return ingredients, train


class TableConstants(TypedDict):
    """What the preparation learns from the training rows, as plain values."""

    task: str
    numbers: dict[str, tables.NumberScale]
    categories: dict[str, list[str]]
    classes: list[str]
    target: tables.NumberScale


class Judgement(TypedDict):
    """The loss and the measures among the arguments of `Ingredients`."""

    loss: Loss
    measures: dict[str, Measure]
    loss_factor: NotRequired[float]


class TableNetwork(nn.Module):
    """An MLP over number columns and an embedding of each category column.

    forward: numbers (N, num_numbers) float32, codes (N, num_categories) int64 -> (N, classes)
    scores, or (N,) standardised values for a regression.
    """

    def __init__(
        self, constants: TableConstants, num_numbers: int, parameters: TabularParameters
    ) -> None:
        super().__init__()
        sizes = [tables.FIRST_KNOWN + len(known) for known in constants["categories"].values()]
        self.embeddings = nn.ModuleList(
            nn.Embedding(size, min(MAX_EMBEDDING, (size + 1) // 2)) for size in sizes
        )
        width = num_numbers + sum(min(MAX_EMBEDDING, (size + 1) // 2) for size in sizes)
        layers: list[nn.Module] = []
        for hidden in parameters.hidden_sizes:
            layers += [nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(parameters.dropout)]
            width = hidden
        self.num_classes = len(constants["classes"])
        self.layers = nn.Sequential(*layers, nn.Linear(width, self.num_classes or 1))

    def forward(self, numbers: Tensor, codes: Tensor) -> Tensor:
        embedded = [each(codes[:, i]) for i, each in enumerate(self.embeddings)]
        outputs: Tensor = self.layers(torch.cat([numbers, *embedded], dim=1))
        return outputs if self.num_classes else outputs.squeeze(1)


def _measure(table: Table, parameters: TabularParameters, train: Tensor) -> TableConstants:
    """Return everything that the preparation learns from the training rows, as plain values."""
    rows = train.numpy()
    task = tables.choose_task(table, parameters)
    is_regression = task == "regression"
    return {
        "task": task,
        "numbers": {
            name: tables.measure_numbers(values[rows]) for name, values in table.numbers.items()
        },
        "categories": {
            name: tables.measure_categories([values[i] for i in rows], parameters.max_categories)
            for name, values in table.categories.items()
        },
        "classes": [] if is_regression else tables.find_classes(table, parameters),
        "target": tables.measure_numbers(_target_numbers(table, parameters)[rows])
        if is_regression
        else {},
    }


def _inputs(table: Table, constants: TableConstants) -> tuple[Tensor, Tensor]:
    """Return numbers (N, columns) float32 and codes (N, category columns) int64."""
    numbers = [
        column
        for name, values in table.numbers.items()
        for column in tables.apply_numbers(values, constants["numbers"][name])
    ]
    codes = [
        tables.apply_categories(values, constants["categories"][name])
        for name, values in table.categories.items()
    ]
    stacked = np.stack(numbers, axis=1) if numbers else np.empty((len(table), 0))
    coded = np.stack(codes, axis=1) if codes else np.empty((len(table), 0), np.int64)
    return torch.from_numpy(stacked).to(torch.float32), torch.from_numpy(coded)


def _targets(table: Table, parameters: TabularParameters, constants: TableConstants) -> Tensor:
    if constants["task"] == "classification":
        return torch.from_numpy(tables.apply_classes(table, constants["classes"]))
    values = _target_numbers(table, parameters)
    target = constants["target"]
    return torch.from_numpy((values - target["mean"]) / target["deviation"]).to(torch.float32)


def _target_numbers(table: Table, parameters: TabularParameters) -> tables.Floats:
    return tables.to_numbers(parameters.target, table.target, "parameters.target")


def _judgement(constants: TableConstants) -> Judgement:
    """Return the loss and the measures; a regression's are in the target's own units."""
    if constants["task"] == "classification":
        return {"loss": nn.functional.cross_entropy, "measures": {"accuracy": accuracy}}
    deviation = constants["target"]["deviation"]

    def absolute_error(outputs: Tensor, targets: Tensor) -> Tensor:
        error: Tensor = (outputs - targets).abs() * deviation
        return error

    return {
        "loss": nn.functional.mse_loss,
        "measures": {"absolute_error": absolute_error},
        "loss_factor": deviation**2,
    }
