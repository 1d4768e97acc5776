"""What a column of the normalised table is, and how a batch of raw values becomes one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from apps.datasets.tables.conversion import arrow_type
from apps.datasets.tables.options import KINDS
from apps.datasets.tables.refusals import TableRefused, listed

DATES = (datetime.min, datetime.max)  # noqa: DTZ901 - that Python, and so pages and API, can show


@dataclass(frozen=True, slots=True)
class Column:
    """`kind` is one of KINDS, or "string": category or text, depending on the values."""

    name: str
    kind: str
    zoned: bool = False
    note: str = ""

    @property
    def type(self) -> pa.DataType:
        return arrow_type(self.kind, zoned=self.zoned)


def schema_of(columns: Iterable[Column]) -> pa.Schema:
    return pa.schema([(column.name, column.type) for column in columns])


def check_declared(declared: Mapping[str, str], names: Sequence[str]) -> None:
    """Raises TableRefused: a declared column that is not there, a type that we do not have."""
    for name, kind in declared.items():
        if kind not in KINDS:
            raise TableRefused(
                "UNKNOWN_TYPE",
                f"{kind!r} is not a type; allowed: {', '.join(KINDS)}.",
                field=f"columns.{name}",
                given=kind,
                allowed=list(KINDS),
            )
        if name not in names:
            raise TableRefused(
                "UNKNOWN_COLUMN",
                f"There is no column {name!r}; allowed: {listed(names, most=20)}.",
                field=f"columns.{name}",
                given=name,
                allowed=list(names[:100]),
            )


def checked(name: str, values: pa.Array, first_row: int) -> pa.Array:
    """Return the values, NaN as missing. Raises TableRefused for infinities and extreme dates."""
    if pa.types.is_timestamp(values.type):
        first, last = (pa.scalar(date, pa.timestamp("us")).value for date in DATES)
        times = pc.cast(values, pa.int64())
        beyond = pc.or_(pc.less(times, first), pc.greater(times, last))
        problem, allowed = "dates outside the years 1 to 9999", "years 1 to 9999, or type text"
        _refuse_any("DATE_OUT_OF_RANGE", name, beyond, first_row, problem, allowed)
    elif pa.types.is_floating(values.type):
        allowed = "finite numbers, or an empty cell for a missing value"
        infinite = pc.is_inf(values)
        _refuse_any("NOT_FINITE", name, infinite, first_row, "infinite values", allowed)
        return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    return values


def _refuse_any(
    code: str, name: str, wrong: pa.BooleanArray, first_row: int, problem: str, allowed: str
) -> None:
    if not pc.any(wrong).as_py():
        return
    rows = pc.indices_nonzero(wrong.fill_null(False)).to_pylist()
    raise TableRefused(
        code,
        f"The column {name!r} holds {problem}, first in row {first_row + rows[0]}; "
        f"allowed: {allowed}.",
        field=f"columns.{name}",
        given=[first_row + row for row in rows[:20]],
        allowed=allowed,
    )


def check_rows(batch: pa.RecordBatch, longest: int) -> None:
    """Raise TableRefused where the texts of a row have more than `longest` bytes together."""
    texts = [each for each in batch.columns if pa.types.is_string(each.type)]
    if not texts or sum(each.nbytes for each in texts) <= longest:
        return
    lengths = [pc.fill_null(pc.binary_length(each), 0) for each in texts]
    if (pc.max(reduce(pc.add, lengths)).as_py() or 0) > longest:
        raise row_too_long(longest, batch.num_columns)


def row_too_long(longest: int, num_columns: int) -> TableRefused:
    return TableRefused(
        "ROW_TOO_LONG",
        f"A row is longer than {longest} bytes, the limit for {num_columns} columns.",
        allowed=longest,
    )
