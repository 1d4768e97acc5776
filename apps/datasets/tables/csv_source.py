"""A CSV as a stream of typed batches: one reading to find the types, one to convert."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv

from apps.datasets.tables.columns import (
    Column,
    check_declared,
    check_rows,
    checked,
    row_too_long,
)
from apps.datasets.tables.conversion import cleaned, converted
from apps.datasets.tables.dialect import delimiter_of, header_of, read_head
from apps.datasets.tables.inference import ColumnInference, DeclaredType
from apps.datasets.tables.options import TableLimits, TableOptions
from apps.datasets.tables.refusals import TableRefused

LEAST_BLOCK_BYTES, RESERVED_BYTES = 2**20, 2**30
FIRST_ROW = 2  # the header is row 1, as a spreadsheet shows it; blank lines are not counted


@dataclass(slots=True)
class Ragged:
    """Rows with too few or too many fields: the first few, and how many."""

    total: int = 0
    rows: list[dict[str, int]] = field(default_factory=list)

    def __call__(self, row: pa_csv.InvalidRow) -> str:
        self.total += 1
        if len(self.rows) < 10:
            self.rows.append({"row": row.number, "fields": row.actual_columns})
        return "skip"


class CsvSource:
    """Reads a UTF-8 file without a byte order mark. Every problem is a TableRefused."""

    def __init__(self, path: Path, options: TableOptions, limits: TableLimits) -> None:
        self.path = path
        self.limits = limits
        head, complete = read_head(path, limits)
        self.delimiter = delimiter_of(head, complete=complete, named=options.delimiter)
        self.names = header_of(head, self.delimiter, complete=complete, limits=limits)
        check_declared(options.columns, self.names)
        self.columns = self._find_types(options)

    def batches(self) -> Iterator[pa.RecordBatch]:
        first_row = FIRST_ROW
        for batch in self._strings(Ragged()):
            yield pa.RecordBatch.from_arrays(
                [
                    _typed(column, values, first_row)
                    for column, values in zip(self.columns, batch.columns, strict=True)
                ],
                names=self.names,
            )
            first_row += batch.num_rows

    def _find_types(self, options: TableOptions) -> list[Column]:
        ragged, first_row = Ragged(), FIRST_ROW
        types = [
            DeclaredType(name, options.columns[name])
            if name in options.columns
            else ColumnInference(name)
            for name in self.names
        ]
        for batch in self._strings(ragged):
            for column, values in zip(types, batch.columns, strict=True):
                column.look(values, first_row)
            first_row += batch.num_rows
            if first_row - FIRST_ROW > self.limits.max_rows:
                raise too_many_rows(first_row - FIRST_ROW, self.limits)
        self._check_rows(ragged, first_row - FIRST_ROW)
        for column in types:
            if isinstance(column, DeclaredType):
                column.check()
        return [Column(c.name, c.kind, bool(c.zoned), c.note) for c in types]

    def _check_rows(self, ragged: Ragged, num_rows: int) -> None:
        self._check_quotes()
        if ragged.total:
            first = ragged.rows[0]
            raise TableRefused(
                "RAGGED_ROWS",
                f"The header has {len(self.names)} fields, but row {first['row']} has "
                f"{first['fields']} ({ragged.total} such rows; the header is row 1).",
                given=ragged.rows,
                num_wrong=ragged.total,
                allowed=len(self.names),
                delimiter=self.delimiter,
            )
        if not num_rows:
            raise TableRefused("NO_ROWS", "The file has a header and no rows.", given=0, allowed=1)

    def _check_quotes(self) -> None:
        """A quotation mark that is never closed swallows all rows after it, without an error."""
        with self.path.open("rb") as file:
            marks = sum(chunk.count(b'"') for chunk in iter(lambda: file.read(1024**2), b""))
        if marks % 2 == 0:
            return
        row = 0
        with self.path.open(encoding="utf-8", newline="") as text:
            try:
                for _ in csv.reader(text, delimiter=self.delimiter, strict=True):
                    row += 1
            except csv.Error:
                raise TableRefused(
                    "BAD_QUOTES",
                    f"A quotation mark in row {row + 1} is not closed or stands inside a field "
                    "(the header is row 1).",
                    row=row + 1,
                ) from None

    def _strings(self, ragged: Ragged) -> Iterator[pa.RecordBatch]:
        """Yield batches of text: of at most a block, of which the reader reserves one a column."""
        block_bytes = max(LEAST_BLOCK_BYTES, RESERVED_BYTES // len(self.names))
        longest = min(self.limits.max_row_bytes, block_bytes)
        try:
            reader = pa_csv.open_csv(
                self.path,
                read_options=pa_csv.ReadOptions(
                    use_threads=False,  # else the numbers of ragged rows are not known
                    block_size=longest,
                    column_names=self.names,
                    skip_rows_after_names=1,
                ),
                parse_options=pa_csv.ParseOptions(
                    delimiter=self.delimiter,
                    newlines_in_values=True,
                    invalid_row_handler=ragged,
                ),
                convert_options=pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(self.names, pa.string()),
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
            for batch in reader:
                check_rows(batch, longest)
                if batch.num_rows:
                    yield batch
        except pa.ArrowInvalid as error:
            self._check_quotes()
            if "straddl" in str(error):  # two blocks
                raise row_too_long(longest, len(self.names)) from None
            raise TableRefused("UNREADABLE_CSV", f"The CSV cannot be read: {error}.") from None


def too_many_rows(given: int, limits: TableLimits) -> TableRefused:
    return TableRefused(
        "TOO_MANY_ROWS",
        f"The table has more than {limits.max_rows} rows.",
        given=given,
        allowed=limits.max_rows,
    )


def _typed(column: Column, values: pa.Array, first_row: int) -> pa.Array:
    if column.kind in ("string", "category", "text"):
        return values
    typed = converted(cleaned(values), column.kind, zoned=column.zoned)
    return checked(column.name, typed, first_row)
