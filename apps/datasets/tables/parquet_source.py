"""A Parquet file as a stream of plain, flat batches. Nothing in it is executed or believed."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from apps.datasets.tables.columns import Column, check_declared, check_rows, checked
from apps.datasets.tables.content import PARQUET
from apps.datasets.tables.conversion import cleaned, converted
from apps.datasets.tables.csv_source import too_many_rows
from apps.datasets.tables.dialect import check_names
from apps.datasets.tables.inference import DeclaredType
from apps.datasets.tables.options import TableLimits, TableOptions
from apps.datasets.tables.refusals import TableRefused

FIRST_ROW = 1
METADATA_BYTES = 64 * 1024**2
PANDAS_INDEX = "__index_level_"
BROKEN = (pa.ArrowException, OSError, ValueError, KeyError, OverflowError, TypeError)


class ParquetSource:
    def __init__(self, path: Path, options: TableOptions, limits: TableLimits) -> None:
        self.limits = limits
        self.declared = options.columns
        self.file = _open(path)
        schema = self.file.schema_arrow
        self.names = [name for name in schema.names if not name.startswith(PANDAS_INDEX)]
        check_names(self.names, limits)
        check_declared(options.columns, self.names)
        self._check_size()
        self.columns = [self._column(schema.field(name)) for name in self.names]

    def batches(self) -> Iterator[pa.RecordBatch]:
        first_row, checks = FIRST_ROW, {c.name: DeclaredType(c.name, c.kind) for c in self.columns}
        for batch in self._raw(self.names):
            arrays = [
                self._typed(column, batch.column(column.name), first_row, checks[column.name])
                for column in self.columns
            ]
            typed = pa.RecordBatch.from_arrays(arrays, names=self.names)
            check_rows(typed, self.limits.max_row_bytes)
            yield typed
            first_row += batch.num_rows
            if first_row - FIRST_ROW > self.limits.max_rows:
                raise too_many_rows(first_row - FIRST_ROW, self.limits)
        if (found := first_row - FIRST_ROW) != (said := self.file.metadata.num_rows):
            raise _broken(f"its footer declares {said} rows, but it has {found}")

    def _raw(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        rows = max(1024, min(65_536, 2**22 // len(names)))
        try:
            for batch in self.file.iter_batches(batch_size=rows, columns=names, use_threads=False):
                batch.validate(full=True)  # strings are UTF-8, offsets are inside
                if batch.num_rows:
                    yield batch
        except BROKEN as error:
            raise _broken(error) from None

    def _check_size(self) -> None:
        metadata = self.file.metadata
        if not metadata.num_rows:
            raise TableRefused("NO_ROWS", "The table has no rows.", given=0, allowed=1)
        if metadata.num_rows > self.limits.max_rows:
            raise too_many_rows(metadata.num_rows, self.limits)
        groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
        unpacked = sum(group.total_byte_size for group in groups)
        if unpacked > self.limits.max_unpacked_bytes:
            raise too_large(unpacked, self.limits)

    def _column(self, field: pa.Field) -> Column:
        found = _kind(field)
        kind = self.declared.get(field.name, found)
        if found == "string" and kind == "datetime":
            return Column(field.name, kind, self._is_zoned(field.name))
        zoned = pa.types.is_timestamp(field.type) and field.type.tz is not None
        return Column(field.name, kind, zoned)

    def _is_zoned(self, name: str) -> bool:
        """Whether dates written as text carry a zone; the first one decides for all."""
        for batch in self._raw([name]):
            values = cleaned(_text(batch.column(0))).drop_null()
            if len(values):
                return converted(values[:1], "datetime", zoned=True) is not None
        return False

    def _typed(
        self, column: Column, values: pa.Array, first_row: int, check: DeclaredType
    ) -> pa.Array:
        if pa.types.is_dictionary(values.type):
            values = self._unpacked(values)
        text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
        if text and column.type != pa.string():
            values = _text(values)
            check.look(values, first_row)
            check.check()
            values = converted(cleaned(values), column.kind, zoned=column.zoned)
        try:
            # Nanoseconds become microseconds; any other loss is an error.
            is_date = column.kind == "datetime"
            options = pc.CastOptions(column.type, allow_time_truncate=is_date)
            typed = pc.cast(values, options=options)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _wrong_type(column, values, first_row, error) from None
        return checked(column.name, typed, first_row)

    def _unpacked(self, values: pa.Array) -> pa.Array:
        try:
            return values.dictionary_decode()
        except (pa.ArrowCapacityError, pa.ArrowInvalid):  # more than 2 GiB in one batch
            raise too_large(2**31, self.limits) from None


def too_large(given: int, limits: TableLimits) -> TableRefused:
    return TableRefused(
        "TOO_LARGE_UNPACKED",
        f"Unpacked, the table has {given} bytes; at most {limits.max_unpacked_bytes} are allowed.",
        given=given,
        allowed=limits.max_unpacked_bytes,
    )


def _open(path: Path) -> pq.ParquetFile:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 4))
        if size < 12 or file.read() != PARQUET:
            raise _broken("it does not end like a Parquet file; it may be truncated")
    try:
        return pq.ParquetFile(
            path,
            thrift_string_size_limit=METADATA_BYTES,
            thrift_container_size_limit=1_000_000,
        )
    except BROKEN as error:
        raise _broken(error) from None


def _broken(error: Exception | str) -> TableRefused:
    if isinstance(error, MemoryError):
        raise error
    reason = str(error).strip().split("\n")[0][:200]
    return TableRefused("INVALID_PARQUET", f"The Parquet file cannot be read: {reason}")


def _kind(field: pa.Field) -> str:
    """Our kind for an Arrow field. Raises TableRefused for what is no flat, plain value."""
    of = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    is_extension = b"ARROW:extension:name" in (field.metadata or {})
    if not is_extension and not isinstance(of, pa.BaseExtensionType):
        for test, kind in _KINDS:
            if test(of):
                return kind
    raise TableRefused(
        "UNSUPPORTED_TYPE",
        f"The column {field.name!r} has the type {str(field.type)[:100]}, not a plain value.",
        field=f"columns.{field.name}",
        given=str(field.type)[:100],
        allowed=["numbers", "booleans", "strings", "dates and timestamps"],
    )


def _text(values: pa.Array) -> pa.Array:
    return pc.cast(values, pa.string())


_KINDS = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_integer, "integer"),
    (pa.types.is_floating, "number"),
    (pa.types.is_decimal, "number"),
    (pa.types.is_date, "datetime"),
    (pa.types.is_timestamp, "datetime"),
    (pa.types.is_string, "string"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_null, "string"),
)


def _wrong_type(column: Column, values: pa.Array, first_row: int, error: Exception) -> TableRefused:
    return TableRefused(
        "WRONG_TYPE",
        f"The column {column.name!r} ({values.type}) cannot become {column.kind}: "
        f"{str(error)[:160]} (rows {first_row} to {first_row + len(values) - 1}).",
        field=f"columns.{column.name}",
        given=str(values.type),
        allowed=column.kind,
    )
