"""What a column of the normalised table is, and how a batch of raw values becomes one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from apps.datasets.tables.conversion import arrow_type
from apps.datasets.tables.options import KINDS
from apps.datasets.tables.refusals import TableRefused, listed


@dataclass(frozen=True, slots=True)
class Column:
    """`kind` is one of KINDS, or "string": category or text, told apart by the values."""

    name: str
    kind: str
    zoned: bool = False
    note: str = ""

    @property
    def type(self) -> Any:
        return arrow_type(self.kind, zoned=self.zoned)


def schema_of(columns: Iterable[Column]) -> Any:
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
                f"There is no column {name!r}; there are {listed(names, most=20)}.",
                field=f"columns.{name}",
                given=name,
                allowed=list(names[:100]),
            )


def finite(name: str, values: Any, first_row: int) -> Any:
    """Floats with NaN as missing. Raises TableRefused for infinities, which teach nothing."""
    if not pa.types.is_floating(values.type):
        return values
    if pc.any(pc.is_inf(values)).as_py():
        rows = pc.indices_nonzero(pc.is_inf(values).fill_null(False)).to_pylist()
        raise TableRefused(
            "NOT_FINITE",
            f"The column {name!r} holds infinite values, first in row {first_row + rows[0]}.",
            field=f"columns.{name}",
            given=[first_row + row for row in rows[:20]],
            allowed="finite numbers, or nothing where a value is missing",
        )
    return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
