"""Where a command writes: what was asked for to stdout, everything said about it to stderr."""

import json
import math
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TextIO

from trainops.cli import tables
from trainops.cli.looks import cell, plain
from trainops.cli.tables import Text, styled
from trainops.client.problems import Problem
from trainops.text import csv_cell

NARROW_WIDTH = 130


ID_FIELDS = (
    "checkpoint_id", "operation_id", "worker_id", "rule_id", "delivery_id", "id", "name",
    "username",
)  # fmt: skip


class OutputFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


class Out:
    """fields: paths such as "config.epochs", the only ones shown of data; ids_only: the ids."""

    def __init__(
        self,
        form: OutputFormat = OutputFormat.TABLE,
        *,
        fields: Sequence[str] = (),
        ids_only: bool = False,
    ) -> None:
        self.form, self._fields, self.ids_only = form, fields, ids_only

    @property
    def is_data(self) -> bool:
        """Whether the API's data are wanted, not a text about them."""
        return self.form is not OutputFormat.TABLE or bool(self._fields) or self.ids_only

    @property
    def can_ask(self) -> bool:
        """Whether a person can read a question and answer it."""
        return self.is_interactive and sys.stdin.isatty()

    @property
    def is_interactive(self) -> bool:
        """Whether a person reads what is written to stderr."""
        return sys.stderr.isatty()

    def data(self, data: object) -> None:
        """Write the API's data, undecorated."""
        if self.ids_only:
            sys.stdout.writelines(f"{plain(each)}\n" for each in map(_id_of, _rows(data)) if each)
            return
        if self._fields and isinstance(data, list | dict):
            if missing := self.missing(_rows(data)):
                allowed = ", ".join(dict.fromkeys(name for row in _rows(data) for name in row))
                self.note(f"--fields: got {missing[0]!r}; allowed: {allowed}")
            chosen = [{path: _at(row, path) for path in self._fields} for row in _rows(data)]
            data = chosen if isinstance(data, list) else chosen[0]
        match self.form:
            case OutputFormat.JSON:
                sys.stdout.write(_json(data, indent=2) + "\n")
            case OutputFormat.YAML:
                from trainops.plain_yaml import dumped  # noqa: PLC0415 - seldom needed

                sys.stdout.write(dumped(data))
            case OutputFormat.CSV:
                self.csv(_rows(data))
            case OutputFormat.TABLE:
                rows = (
                    [cell(_text(row.get(name))) for name in self._fields] for row in _rows(data)
                )
                self.table([each.upper() for each in self._fields], rows)

    def missing(self, rows: Sequence[Mapping[str, object]]) -> list[str]:
        """Return the chosen fields that none of these rows has."""
        names = {name for row in rows for name in row}
        return [
            path for path in self._fields if rows and not names & {path, path.partition(".")[0]}
        ]

    def csv(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Write rows with a line of names; no text is one that a spreadsheet computes."""
        from csv import writer as csv_writer  # noqa: PLC0415 - seldom needed

        names = list(dict.fromkeys(name for row in rows for name in row))
        if names:
            writer = csv_writer(sys.stdout, lineterminator="\n")
            writer.writerow([csv_cell(name) for name in names])
            writer.writerows([_csv_text(row.get(name)) for name in names] for row in rows)

    def text(self, text: str, *, end: str = "\n") -> None:
        """Write to stdout as it is; long lines are the terminal's to fold."""
        sys.stdout.write(text + end)

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[Text | str]],
        *,
        narrow: Sequence[str] = (),
        elastic: str = "",
    ) -> None:
        """Write a line for each row; on a narrow terminal only the columns in `narrow`, if given.

        Where even they are too wide, the column `elastic` gives way. Without a terminal there is
        no edge: rows stay whole for grep and awk.
        """
        edge = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        is_narrow = bool(narrow) and edge is not None and edge < NARROW_WIDTH
        shown = [index for index, name in enumerate(columns) if not is_narrow or name in narrow]
        header = [columns[index] for index in shown]
        chosen = ([row[index] for index in shown] for row in rows)
        self._write(header, chosen, edge, elastic)
        if left_out := [name for index, name in enumerate(columns) if index not in shown]:
            what = f"Not shown on less than {NARROW_WIDTH} columns: {', '.join(left_out)}"
            self.note(what, style="bright_black")

    def pairs(self, pairs: Iterable[tuple[str, object]]) -> None:
        """Write names and values below each other, leaving out what has no value."""
        rows = [
            (Text(name, "bright_black"), value if isinstance(value, Text) else cell(value))
            for name, value in pairs
            if value
        ]
        if rows:
            self._write(("", ""), rows, None, "")

    def note(self, text: str, *, style: str = "") -> None:
        """Say something beside the answer."""
        line = styled(plain(text), style, is_colored=_is_colored(sys.stderr))
        sys.stderr.write(line + "\n")

    def problem(self, problem: Problem) -> None:
        first = styled("error:", "bold red", is_colored=_is_colored(sys.stderr))
        sys.stderr.write(f"{first} {plain(problem)}\n")
        for hint in problem.hints:
            self.note(f"  {hint}")

    def _write(
        self,
        header: Sequence[str],
        rows: Iterable[Sequence[Text | str]],
        edge: int | None,
        elastic: str,
    ) -> None:
        is_colored = _is_colored(sys.stdout)
        for line in tables.lines(
            header, rows, columns=edge, elastic=elastic, is_colored=is_colored
        ):
            sys.stdout.write(line + "\n")


def _rows(data: object) -> list[Mapping[str, object]]:
    rows = data if isinstance(data, list) else [data]
    return [row if isinstance(row, Mapping) else {"value": row} for row in rows]


def _id_of(row: Mapping[str, object]) -> object:
    return next((row[name] for name in ID_FIELDS if row.get(name) not in (None, "")), None)


def _at(row: object, path: str) -> object:
    """Return the value at a path of names and indices separated by dots; None where none is.

    Names of metrics may have dots themselves: what is left of the path is one name, if it is there.
    """
    if isinstance(row, Mapping) and path in row:
        return row[path]
    name, dot, rest = path.partition(".")
    if isinstance(row, Mapping):
        inner = row.get(name)
    elif isinstance(row, list) and name.isdecimal() and int(name) < len(row):
        inner = row[int(name)]
    else:
        return None
    return _at(inner, rest) if dot else inner


def _finite(data: object) -> object:
    """Return data as the API sends them: numbers that JSON does not have are texts."""
    match data:
        case float() if not math.isfinite(data):
            return str(data)
        case dict():
            return {name: _finite(each) for name, each in data.items()}
        case list() | tuple():
            return [_finite(each) for each in data]
        case _:
            return data


def _json(data: object, indent: int | None = None) -> str:
    return json.dumps(_finite(data), indent=indent, ensure_ascii=False, allow_nan=False)


def _text(value: object) -> str:
    """Return a value as the text of a cell: texts as they are, nothing for none, else JSON."""
    if value is None:
        return ""
    value = _finite(value)
    return value if isinstance(value, str) else _json(value)


def _csv_text(value: object) -> str:
    return csv_cell(value) if isinstance(value, str) else _text(value)


def _is_colored(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
