"""Reading a table and turning it into numbers.

Everything that is measured on the rows (medians, means, known categories, classes) is measured on
the training rows only, and once: the measurements are plain values that a checkpoint keeps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trainops.learning.tasks.tabular import TabularParameters, no_such_column
from trainops.runtime.errors import InputError

Floats = NDArray[np.float64]

MISSING, OTHER, FIRST_KNOWN = 0, 1, 2  # codes of a category column
MIN_ROWS = 5
MAX_CLASSES = 1000
FEW_INTEGERS = 20  # an integer target with at most so many different values is a class
FEW_VALUES = 50  # a column of strings with at most so many different ones is never free text


@dataclass(frozen=True, slots=True)
class Table:
    """The labelled rows: number columns with NaN for missing, category columns with None."""

    numbers: dict[str, Floats]
    categories: dict[str, list[str | None]]
    target: pa.ChunkedArray
    rows_without_target: int

    def __len__(self) -> int:
        return len(self.target)


def read_table(path: Path, parameters: TabularParameters) -> Table:
    """Read the columns that are used, without the rows that have no target. Raises InputError."""
    columns = pq.read_schema(path).names
    if parameters.target not in columns:
        raise InputError({"parameters.target": no_such_column([parameters.target], columns)})
    if unknown := [name for name in parameters.drop_columns if name not in columns]:
        raise InputError({"parameters.drop_columns": no_such_column(unknown, columns)})
    used = [name for name in columns if name not in {*parameters.drop_columns, parameters.target}]
    if not used:
        raise InputError({"parameters.drop_columns": "no input column is left"})
    table = pq.read_table(path, columns=[*used, parameters.target])
    labelled = table.filter(has_value(table[parameters.target]))
    if len(labelled) < MIN_ROWS:
        raise InputError(
            {
                "parameters.target": f"column {parameters.target!r} has a value in "
                f"{len(labelled)} of {len(table)} rows; at least {MIN_ROWS} are needed"
            }
        )
    numbers: dict[str, Floats] = {}
    categories: dict[str, list[str | None]] = {}
    for name in used:
        column = labelled[name]
        if _is_category(column.type):
            categories[name] = _strings(name, column)
        else:
            numbers[name] = to_numbers(name, column, "parameters.drop_columns")
    return Table(numbers, categories, labelled[parameters.target], len(table) - len(labelled))


def has_value(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return which rows have a value; NaN is none."""
    return pc.is_valid(_no_nan(column))


def to_numbers(name: str, column: pa.ChunkedArray, field: str) -> Floats:
    """Return the column as numbers, NaN where missing; dates as seconds. Raises InputError."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if pa.types.is_temporal(kind):
        column = _seconds(column)
    elif not (_is_number(kind) or pa.types.is_boolean(kind)):
        raise InputError({field: f"column {name!r} holds {kind}, which cannot become a number"})
    values: Floats = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    if infinite := int(np.isinf(values).sum()):
        raise InputError({field: f"column {name!r} is infinite in {infinite} rows"})
    return values


class NumberScale(TypedDict, total=False):
    """The constants of a number column; empty for the target of a classification."""

    median: float
    mean: float
    deviation: float
    has_missing: bool


def measure_numbers(values: Floats) -> NumberScale:
    """Return the constants of a number column from its training rows."""
    present = values[~np.isnan(values)]
    median = float(np.median(present)) if len(present) else 0.0
    filled = np.where(np.isnan(values), median, values)
    deviation = float(filled.std())
    return {
        "median": median,
        "mean": float(filled.mean()),
        "deviation": deviation if np.isfinite(deviation) and deviation > 0 else 1.0,
        "has_missing": len(present) < len(values),
    }


def apply_numbers(values: Floats, constants: NumberScale) -> list[Floats]:
    """Return the standardised column, and which were missing if some training rows lacked it."""
    is_missing = np.isnan(values)
    filled = np.where(is_missing, constants["median"], values)
    columns = [(filled - constants["mean"]) / constants["deviation"]]
    if constants["has_missing"]:
        columns.append(is_missing.astype(np.float64))
    return columns


def measure_categories(values: Sequence[str | None], max_categories: int) -> list[str]:
    """Return the values to tell apart, the most frequent first; the rest will be "other"."""
    counts: dict[str, int] = {}
    for value in values:
        if value is not None:
            counts[value] = counts.get(value, 0) + 1
    return sorted(counts, key=lambda value: (-counts[value], value))[:max_categories]


def apply_categories(values: Sequence[str | None], known: Sequence[str]) -> NDArray[np.int64]:
    """Return a code for each row: MISSING, OTHER, or FIRST_KNOWN and up."""
    codes: dict[str | None, int] = {value: FIRST_KNOWN + i for i, value in enumerate(known)}
    codes[None] = MISSING
    return np.fromiter((codes.get(value, OTHER) for value in values), np.int64, len(values))


def choose_task(table: Table, parameters: TabularParameters) -> str:
    """Return "classification" or "regression". Raises InputError where the target forbids it."""
    kind, field = table.target.type, "parameters.task"
    is_numeric = _is_number(kind)
    if parameters.task == "regression" and not is_numeric:
        raise InputError(
            {field: f"got 'regression'; column {parameters.target!r} holds {kind}, not numbers"}
        )
    if parameters.task != "auto":
        return parameters.task
    if pa.types.is_temporal(kind):
        raise InputError({field: f"column {parameters.target!r} holds {kind}; name the task"})
    is_few = pa.types.is_integer(kind) and pc.count_distinct(table.target).as_py() <= FEW_INTEGERS
    return "regression" if is_numeric and not is_few else "classification"


def find_classes(table: Table, parameters: TabularParameters) -> list[str]:
    """Return the classes of the target, sorted. Raises InputError."""
    values = pc.unique(_decoded(table.target)).to_pylist()
    if not 2 <= len(values) <= MAX_CLASSES:
        raise InputError(
            {
                "parameters.target": f"column {parameters.target!r} has {len(values)} different "
                f"values; classification needs 2 to {MAX_CLASSES}"
            }
        )
    return [str(value) for value in sorted(values)]


def apply_classes(table: Table, classes: Sequence[str]) -> NDArray[np.int64]:
    """Return the number of each row's class."""
    numbers = {value: number for number, value in enumerate(classes)}
    values = _decoded(table.target).to_pylist()
    return np.fromiter((numbers[str(value)] for value in values), np.int64, len(values))


def _strings(name: str, column: pa.ChunkedArray) -> list[str | None]:
    values: list[str | None] = _decoded(column).to_pylist()
    present = [value for value in values if value is not None]
    num_distinct = len(set(present))
    if num_distinct > FEW_VALUES and 2 * num_distinct > len(present):  # they hardly repeat
        raise InputError(
            {
                "parameters.drop_columns": f"column {name!r} holds free text ({num_distinct:,} "
                f"different values in {len(present):,} rows), which this recipe cannot read; "
                "name it here to leave it out"
            }
        )
    return values


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _no_nan(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """NaN is missing, too."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)


def _seconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return dates, times and durations as seconds; dates since 1970."""
    kind = column.type
    if pa.types.is_date(kind):
        kind, column = pa.timestamp("s"), column.cast(pa.timestamp("s"), safe=False)
    units = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
    whole = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    return pc.divide(whole.cast(pa.float64(), safe=False), units[kind.unit])


def _is_category(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_category(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )
