"""What is wrong with a table, in a form that crosses a process boundary."""

from collections.abc import Sequence


class TableRefused(Exception):
    """The file is not a table that we accept.

    `field` is what the person gave (`file`, `encoding`, `delimiter`, `columns.NAME`), `details` is
    JSON-safe.
    """

    def __init__(self, code: str, message: str, *, field: str = "file", **details: object) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field
        self.details = details


def listed(names: Sequence[object], *, most: int = 5) -> str:
    """Some names for a message: "'a', 'b' and 3 more"."""
    shown = ", ".join(repr(name) for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def at_rows(rows: Sequence[tuple[int, str]], total: int) -> str:
    """Where values are wrong: "row 17: 'abc'; row 19: 'x' and 3 more"."""
    shown = "; ".join(f"row {row}: {value!r}" for row, value in rows[:5])
    hidden = total - min(len(rows), 5)
    return f"{shown} and {hidden} more" if hidden > 0 else shown
