"""The loop of the large_table recipe: few row groups are in memory at a time."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from trainops.datasets.errors import DataError
from trainops.kinds.loop.passes import Passes
from trainops.kinds.loop.recipes.large_table import Parameters
from trainops.kinds.loop.run import Run
from trainops.learning.readers import ParquetRows
from trainops.runtime.errors import InputError

T = TypeVar("T")
MEASURED_ROWS = 10_000  # from which the scale of each column is taken


class Numbers(Dataset[Tensor]):
    """Rows as float32, a whole batch at once."""

    def __init__(self, rows: ParquetRows) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Tensor:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> Tensor:
        wanted = list(indices)
        table = self._rows.batch(wanted)
        for name in table.column_names:
            if table[name].null_count:
                row = wanted[table[name].is_null().index(True).as_py()]
                raise DataError(f"{self._rows.directory.root}: {name} is missing in row {row}")
        columns = [table[name].to_numpy().astype(np.float32) for name in table.column_names]
        return torch.from_numpy(np.stack(columns, 1))


class Scaled(nn.Module):
    """A network between standardised columns; the last column is the target."""

    def __init__(self, rows: Tensor, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", rows.mean(0))
        self.register_buffer("deviation", rows.std(0).clamp_min(1e-6))
        self.layers = nn.Sequential(
            nn.Linear(rows.shape[1] - 1, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, 1),
        )  # fmt: skip

    def forward(self, rows: Tensor) -> Tensor:
        """Return the squared error of each row, in units of the target's variance."""
        scaled = (rows - self.get_buffer("mean")) / self.get_buffer("deviation")
        predicted = self.layers(scaled[:, :-1]).squeeze(1)
        return functional.mse_loss(predicted, scaled[:, -1], reduction="none")


def train(run: Run, parameters: Parameters) -> Iterator[dict[str, Tensor | float]]:
    rows = read(run, parameters)
    first_held_out = len(rows) - max(1, round(len(rows) * parameters.validation_fraction))
    if not first_held_out:
        raise DataError(f"{rows.directory.root} holds {len(rows)} rows; allowed: at least 2")

    def shuffled(seed: int, number: int) -> Tensor:
        order = rows.order(seed, number)
        return order[order < first_held_out]

    def held_out(seed: int, number: int) -> Tensor:
        return torch.arange(first_held_out, len(rows))

    numbers, size = Numbers(rows), parameters.batch_size
    batches = run.loader(
        "train", numbers, batch_size=size, sampler=shuffled, collate_fn=as_it_is, is_random=False
    )
    validation = run.loader(
        "val", numbers, batch_size=size, sampler=held_out, collate_fn=as_it_is, is_random=False
    )
    measured = numbers.__getitems__(shuffled(run.seed, 0)[:MEASURED_ROWS].tolist())
    model = run.keep("model", Scaled(measured, parameters.width).to(run.device))
    net = run.wrap(model)  # averages gradients if there are several processes
    optimizer = run.keep(
        "optimizer", torch.optim.AdamW(model.parameters(), parameters.learning_rate)
    )
    sums = run.keep("sums", {"loss": 0.0})

    for _ in run.epochs(parameters.epochs):
        for batch in batches:
            loss = net(batch.to(run.device)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield {"train_loss": loss}
        yield from evaluate(run, model, validation, sums, len(rows) - first_held_out)


def evaluate(
    run: Run, model: nn.Module, validation: Passes, sums: dict[str, float], number: int
) -> Iterator[dict[str, Tensor | float]]:
    """Yield the mean over the held-out rows; may be stopped between their batches."""
    sums["loss"] = 0.0
    for batch in validation:
        with torch.no_grad():
            errors = model(batch.to(run.device))
        sums["loss"] += run.totals(validation, loss=errors.sum())["loss"]
        yield {}
    yield {"val_loss": sums["loss"] / number}


def read(run: Run, parameters: Parameters) -> ParquetRows:
    """Return the rows, the target as the last column. Raises InputError."""
    directory = run.directory(parameters.directory)
    names = parameters.features or ParquetRows(directory).columns
    columns = [*(each for each in names if each != parameters.target), parameters.target]
    rows = ParquetRows(directory, columns)
    kinds = {name: rows.schema.field(name).type for name in columns}
    problems = [f"{name} ({kind})" for name, kind in kinds.items() if not is_number(kind)]
    if problems or len(columns) < 2:
        problem = f"got {', '.join(problems)}" if problems else "got no other column"
        raise InputError({"parameters.features": f"{problem}; allowed: columns of numbers"})
    return rows


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def as_it_is(batch: T) -> T:
    return batch
