"""What a table looks like, gathered while it streams by; JSON-safe, for people and forms."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from apps.datasets.tables.columns import Column
from apps.datasets.tables.histogram import ColumnCounts
from apps.datasets.tables.rows import ColumnRow, DescribedTable

MAX_DISTINCT = 1000  # above it they are not counted, and `distinct` is null
FEW = 50
NUM_EXAMPLES = 5
PREVIEW_ROWS, PREVIEW_CELLS, CELL_LENGTH = 50, 20_000, 200


@dataclass(slots=True)
class ColumnDescription:
    column: Column
    num_rows: int = 0
    missing: int = 0
    smallest: object = None
    largest: object = None
    values: dict[object, None] = field(
        default_factory=dict
    )  # distinct ones, in order of appearance
    numbers: ColumnCounts = field(default_factory=ColumnCounts)

    def look(self, array: pa.Array) -> None:
        self.num_rows += len(array)
        self.missing += array.null_count
        if len(self.values) <= MAX_DISTINCT:
            new = pc.unique(array.drop_null())[: MAX_DISTINCT + 1]
            self.values |= dict.fromkeys(new.to_pylist())
        if self.column.kind in ("integer", "number", "datetime"):
            found = pc.min_max(array)
            low, high = found["min"].as_py(), found["max"].as_py()
            if low is not None:
                self.smallest = low if self.smallest is None else min(self.smallest, low)
                self.largest = high if self.largest is None else max(self.largest, high)
        if self.column.kind in ("integer", "number"):
            known = pc.cast(array.drop_null(), pa.float64(), safe=False)
            self.numbers.add(known.to_numpy(zero_copy_only=False))

    @property
    def kind(self) -> str:
        """Strings are categories while they repeat: few values, or each on average twice."""
        if self.column.kind != "string":
            return self.column.kind
        distinct = len(self.values)
        repeats = distinct <= MAX_DISTINCT and distinct * 2 <= self.num_rows
        return "category" if distinct <= FEW or repeats else "text"

    @property
    def is_empty(self) -> bool:
        """Whether nothing stands in it, or nothing but spaces."""
        return all(isinstance(value, str) and not value.strip() for value in self.values)

    def to_json(self) -> ColumnRow:
        distinct = len(self.values)
        described: ColumnRow = {
            "name": self.column.name,
            "type": self.kind,
            "missing": self.missing,
            "distinct": distinct if distinct <= MAX_DISTINCT else None,
            "min": cell(self.smallest),
            "max": cell(self.largest),
            "examples": [cell(value) for value in list(self.values)[:NUM_EXAMPLES]],
            "note": self.column.note,
        }
        if histogram := self.numbers.to_json():
            described["histogram"] = histogram
        return described


class Description:
    """Columns, rows and a preview of the first rows."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = [ColumnDescription(column) for column in columns]
        self.num_rows = 0
        self.num_preview_rows = max(1, min(PREVIEW_ROWS, PREVIEW_CELLS // len(columns)))
        self.preview: list[list[object]] = []

    def look(self, batch: pa.RecordBatch) -> None:
        self.num_rows += batch.num_rows
        for column, array in zip(self.columns, batch.columns, strict=True):
            column.look(array)
        if (wanted := self.num_preview_rows - len(self.preview)) > 0:
            head = batch.slice(0, wanted)
            self.preview += _rows(head.columns)

    def to_json(self) -> DescribedTable:
        return {
            "num_rows": self.num_rows,
            "columns": [column.to_json() for column in self.columns],
            "preview": self.preview,
        }


def cell(value: object) -> object:
    """A value as JSON: dates in ISO 8601, long text cut. NUL stands in no database."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str):
        value = value.replace("\x00", "\ufffd")
        return value if len(value) <= CELL_LENGTH else value[: CELL_LENGTH - 1] + "…"
    return value


def _rows(arrays: Iterable[pa.Array]) -> list[list[object]]:
    lists = [[cell(value) for value in array.to_pylist()] for array in arrays]
    return [list(row) for row in zip(*lists, strict=True)]
