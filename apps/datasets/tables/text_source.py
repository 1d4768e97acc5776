"""Text as a table of one column: each line of the file is a value, and there is no header."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from apps.datasets.tables.columns import Column, check_declared, row_too_long
from apps.datasets.tables.csv_source import too_many_rows
from apps.datasets.tables.options import TableLimits, TableOptions
from apps.datasets.tables.refusals import TableRefused

NAME = "text"  # of the column
BATCH_ROWS, BATCH_BYTES = 65_536, 2**23
ENDS = b"\n", b"\r"


class TextSource:
    """Reads a UTF-8 file whose last line is ended. Empty lines are empty values, not missing."""

    def __init__(self, path: Path, options: TableOptions, limits: TableLimits) -> None:
        self._path, self._limits = path, limits
        check_declared(options.columns, [NAME])
        if (kind := options.columns.get(NAME, "text")) != "text":
            problem = f"The column {NAME!r} of lines cannot be of the type {kind!r}; allowed: text."
            raise TableRefused(
                "WRONG_TYPE", problem, field=f"columns.{NAME}", given=kind, allowed="text"
            )
        self.columns = [Column(NAME, "text")]

    def batches(self) -> Iterator[pa.RecordBatch]:
        lines: list[str] = []
        num_rows = num_bytes = 0
        for line in self._lines():
            lines.append(line.decode())
            num_rows, num_bytes = num_rows + 1, num_bytes + len(line)
            if num_rows > self._limits.max_rows:
                raise too_many_rows(num_rows, self._limits)
            if len(lines) == BATCH_ROWS or num_bytes >= BATCH_BYTES:
                yield _batch(lines)
                lines, num_bytes = [], 0
        if lines:
            yield _batch(lines)

    def _lines(self) -> Iterator[bytes]:
        """Yield each line without its end: LF or CR LF."""
        longest = self._limits.max_row_bytes
        with self._path.open("rb") as file:
            while line := file.readline(longest + 3):
                for end in ENDS:
                    line = line.removesuffix(end)
                if len(line) > longest:
                    raise row_too_long(longest, 1)
                yield line


def _batch(lines: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(lines, pa.string())], names=[NAME])
