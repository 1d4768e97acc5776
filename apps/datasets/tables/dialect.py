"""How a CSV separates its fields, and what its columns are called."""

import csv
import io
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from apps.datasets.tables.options import DELIMITERS, LINES, TableLimits
from apps.datasets.tables.refusals import TableRefused, listed

SAMPLE_ROWS = 100


def read_head(path: Path, limits: TableLimits) -> tuple[str, bool]:
    """The first characters of a UTF-8 file, enough for the header; and whether that is all."""
    with path.open(encoding="utf-8", newline="") as file:
        head = file.read(limits.max_row_bytes)
        return head, not file.read(1)


def delimiter_of(head: str, *, complete: bool, named: str = "") -> str:
    """The named delimiter, or the one that cuts the first rows into equally many fields.

    Several such: the one with the most fields. None: the one that the header holds most often, so
    that ragged rows are reported as such. No delimiter at all: a table of one column.
    """
    if named:
        if named not in DELIMITERS:
            raise TableRefused(
                "UNKNOWN_DELIMITER",
                f"{named!r} is not a supported delimiter.",
                field="delimiter",
                given=named,
                allowed=[*DELIMITERS, LINES],
            )
        return named
    widths = {delimiter: _widths(head, delimiter, complete) for delimiter in DELIMITERS}
    even = {d: w[0] for d, w in widths.items() if len(set(w)) == 1 and w[0] > 1}
    candidates = even or {d: w[0] for d, w in widths.items() if w}
    return max(candidates, key=candidates.__getitem__, default=",")


def header_of(head: str, delimiter: str, *, complete: bool, limits: TableLimits) -> list[str]:
    """The column names, trimmed. Raises TableRefused where they cannot be used."""
    rows = _rows(head, delimiter, complete, 1)
    if not rows:
        raise TableRefused(
            "HEADER_TOO_LONG",
            f"The first row does not end within {limits.max_row_bytes} bytes "
            "(a quotation mark may be unclosed).",
            allowed=limits.max_row_bytes,
        )
    names = [name.strip() for name in rows[0]]
    check_names(names, limits)
    return names


def check_names(names: Sequence[str], limits: TableLimits) -> None:
    """Raises TableRefused: too many, empty, repeated, too long, or not printable."""
    if len(names) > limits.max_columns:
        raise TableRefused(
            "TOO_MANY_COLUMNS",
            f"The table has {len(names)} columns; at most {limits.max_columns} are allowed.",
            given=len(names),
            allowed=limits.max_columns,
        )
    if empty := [position for position, name in enumerate(names, 1) if not name]:
        raise TableRefused(
            "EMPTY_COLUMN_NAME",
            f"Column {', '.join(map(str, empty[:5]))} has no name in the header "
            "(if pandas wrote an index, save with index=False).",
            positions=empty[:20],
        )
    if repeated := [name for name, times in Counter(names).items() if times > 1]:
        raise TableRefused(
            "DUPLICATE_COLUMN_NAME",
            f"The header names {listed(repeated)} more than once (the file may have no header).",
            given=repeated[:20],
        )
    for name in names:
        if len(name) > limits.max_name_length or not name.isprintable():
            raise TableRefused(
                "INVALID_COLUMN_NAME",
                f"The column name {name[:60]!r} is not allowed; allowed: at most "
                f"{limits.max_name_length} printable characters.",
                given=name[:60],
                allowed=limits.max_name_length,
            )


def _widths(head: str, delimiter: str, complete: bool) -> list[int]:
    return [len(row) for row in _rows(head, delimiter, complete, SAMPLE_ROWS)]


def _rows(head: str, delimiter: str, complete: bool, most: int) -> list[list[str]]:
    """The first whole rows of `head`; blank lines are none."""
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(io.StringIO(head, newline=""), delimiter=delimiter)
    rows = list(islice((row for row in reader if row), most + 1))
    if not complete and len(rows) <= most:
        rows = rows[:-1]  # the end of `head` may have cut the last one
    return rows[:most]
