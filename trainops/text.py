"""Characters that change how text is shown: no name has them, and every log escapes them.

Also text that a spreadsheet would take for a formula.
"""

import logging
import re
from unicodedata import category

FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")  # how a cell begins that is computed
NUMBER = re.compile(r"[-+](\d+(\.\d*)?([eE][-+]?\d+)?|Infinity)", re.ASCII)
JOINERS = re.compile(  # between letters, as in Persian words, or symbols, as in emoji
    r"(?<=[^\x00-\x7f\u200b-\u200f])[\u200c\u200d](?=[^\x00-\x7f\u200b-\u200f])"
)
HIDDEN = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})  # controls, overrides, separators


def name_problem(text: str) -> str:
    """Return what is wrong with the characters of a name, or an empty text."""
    others = JOINERS.sub("", text)
    hidden = sorted({f"U+{ord(each):04X}" for each in others if category(each) in HIDDEN})
    if not hidden:
        return ""
    return f"contains invisible characters ({', '.join(hidden[:5])}); remove them"


def escaped(text: str) -> str:
    """Return the text in one line, with such characters written as Python writes them."""
    return "".join(
        each.encode("unicode_escape").decode() if category(each) in HIDDEN else each
        for each in text
    )


def csv_cell(text: str) -> str:
    """Return a cell of text that no spreadsheet takes for a formula (OWASP, "CSV Injection").

    A lone CR, which is not quoted and ends a row for its readers, becomes a space.
    """
    is_formula = text.startswith(FORMULAS) and not NUMBER.fullmatch(text)
    return ("'" if is_formula else "") + text.replace("\r", " ")


class LineFormatter(logging.Formatter):
    """Formats a record as one line; the lines of a traceback are indented below it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return escaped(super().formatMessage(record))

    def formatException(self, ei: object) -> str:  # noqa: N802 - logging's name
        lines = super().formatException(ei).splitlines()  # type: ignore[arg-type]
        return "\n".join(f"    {escaped(line)}" for line in lines)
