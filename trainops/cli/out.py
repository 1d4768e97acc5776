"""Where a command writes: what was asked for to stdout, everything said about it to stderr."""

import json
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trainops.cli.looks import cell, plain
from trainops.cli.problems import Problem

NARROW_WIDTH = 130
PIPED_WIDTH = 240  # no terminal, no edge: rows stay whole for grep and awk


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"


class Out:
    def __init__(self, form: Format = Format.TABLE) -> None:
        self.form = form
        self.stdout = _console(is_error=False)
        self.stderr = _console(is_error=True)

    @property
    def is_json(self) -> bool:
        return self.form is Format.JSON

    def json(self, data: Any) -> None:
        """Write the API's data, undecorated."""
        sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")

    def text(self, text: str | Text, *, end: str = "\n") -> None:
        """Write to stdout as it is; long lines are the terminal's to fold."""
        self.stdout.print(text, end=end, soft_wrap=True, highlight=False, markup=False)

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[Text | str]],
        *,
        narrow: Sequence[str] = (),
        elastic: str = "",
    ) -> None:
        """Write a line for each row; on a narrow terminal only the columns in `narrow`, if given.

        Where even they are too wide, the column `elastic` gives way.
        """
        is_narrow = bool(narrow) and self.stdout.width < NARROW_WIDTH
        shown = [index for index, name in enumerate(columns) if not is_narrow or name in narrow]
        table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
        for index in shown:
            table.add_column(columns[index], no_wrap=columns[index] != elastic)
        for row in rows:
            table.add_row(*(row[index] for index in shown))
        self.stdout.print(table)

    def pairs(self, pairs: Iterable[tuple[str, Any]]) -> None:
        """Write names and values below each other, leaving out what has no value."""
        grid = Table.grid(padding=(0, 2))
        for name, value in pairs:
            if value:
                shown = value if isinstance(value, Text) else cell(value)
                grid.add_row(Text(name, style="bright_black"), shown)
        self.stdout.print(grid)

    def note(self, text: str, *, style: str = "") -> None:
        """Say something beside the answer."""
        self.stderr.print(Text(plain(text), style=style), soft_wrap=True)

    def problem(self, problem: Problem) -> None:
        self.stderr.print(
            Text.assemble(("error: ", "bold red"), plain(problem)), soft_wrap=True, highlight=False
        )
        for hint in problem.hints:
            self.note(f"  {hint}")


def _console(*, is_error: bool) -> Console:
    stream = sys.stderr if is_error else sys.stdout
    width = None if stream.isatty() else PIPED_WIDTH
    return Console(stderr=is_error, width=width, highlight=False, markup=False, emoji=False)
