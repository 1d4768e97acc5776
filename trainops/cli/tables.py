"""Text in columns on a terminal. A library for it would double the time of a short command."""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

GAP = "  "
CODES = {
    "bold": "1",
    "red": "31",
    "bold red": "1;31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "cyan": "36",
    "bright_black": "90",
}
MIN_WIDTH = 8  # of the column that gives way


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of text with one of the styles in CODES. `wraps`: may take several lines."""

    plain: str
    style: str = ""
    wraps: bool = False

    def __str__(self) -> str:
        return self.plain


def styled(text: str, style: str, *, is_colored: bool) -> str:
    return f"\x1b[{CODES[style]}m{text}\x1b[0m" if is_colored and style else text


def width(text: str) -> int:
    """Return the number of columns that the text takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def lines(
    header: Sequence[str],
    rows: Iterable[Sequence[Text | str]],
    *,
    columns: int | None = None,
    elastic: str = "",
    is_colored: bool = False,
) -> Iterator[str]:
    """Yield a header, if any, and lines for each row.

    Where a row takes more than `columns`, the column `elastic` gives way: it is wrapped or cut.
    """
    cells = [[each if isinstance(each, Text) else Text(each) for each in row] for row in rows]
    head = [Text(name, "bold") for name in header]
    shown = [head, *cells] if any(header) else cells
    widths = [max(map(width, map(str, column))) for column in zip(*shown, strict=True)]
    over = sum(widths) + len(GAP) * (len(widths) - 1) - (columns or 10**9)
    if over > 0 and elastic in header:
        index = header.index(elastic)
        widths[index] = max(MIN_WIDTH, widths[index] - over)
    for row in shown:
        yield from _row(row, widths, is_colored=is_colored)


def _row(row: Sequence[Text], widths: Sequence[int], *, is_colored: bool) -> Iterator[str]:
    folded = [_folded(each, most) for each, most in zip(row, widths, strict=True)]
    for line in zip_longest(*folded, fillvalue=""):
        parts = (
            styled(text, cell.style, is_colored=is_colored) + " " * (most - width(text))
            for text, cell, most in zip(line, row, widths, strict=True)
        )
        yield GAP.join(parts).rstrip()


def _folded(cell: Text, most: int) -> list[str]:
    if width(cell.plain) <= most:
        return [cell.plain]
    return list(_wrapped(cell.plain, most)) if cell.wraps else [cut(cell.plain, most)]


def _wrapped(text: str, most: int) -> Iterator[str]:
    line = ""
    for word in text.split():
        if line and width(line) + 1 + width(word) > most:
            yield line
            line = ""
        line = f"{line} {word}" if line else word
        while width(line) > most:
            first = _beginning(line, most)
            yield first
            line = line[len(first) :]
    yield line


def cut(text: str, most: int) -> str:
    """Return the text, or its beginning and an ellipsis if it takes more than `most` columns."""
    return text if width(text) <= most else _beginning(text, most - 1) + "…"


def _beginning(text: str, most: int) -> str:
    """Return as many letters as fit, at least one."""
    taken = 0
    for index, letter in enumerate(text):
        taken += _width(letter)
        if taken > most and index:
            return text[:index]
    return text
