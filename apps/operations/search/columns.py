"""Columns of the list: values that are shown in addition, and own columns that are removed."""

import re
from collections.abc import Iterable

from apps.operations.search.language import quoted, unquoted
from apps.operations.search.sorting import is_value

OWN = ("state", "progress", "metric", "worker", "started")  # those that can be removed
MAX_ADDED = 12
MAX_COLUMNS = MAX_ADDED + len(OWN)
_WORD = re.compile(r'(?:"[^"]*"|[^\s,"])+')
FORM = f"names of metrics and config fields, perhaps quoted; to remove a column: -{', -'.join(OWN)}"


def is_column(text: str) -> bool:
    """Whether `text` names a value to add, or with a minus sign a column to remove."""
    return is_value(text) or (text.startswith("-") and text[1:] in OWN)


def words(text: str) -> list[str]:
    """Return what spaces and commas separate, except those between quotation marks."""
    return _WORD.findall(text)


def split(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the added columns, and of those that are removed; no other names.

    Names are in quotation marks where a query needs them, too.
    """
    known = dict.fromkeys(
        name if name.startswith("-") else quoted(unquoted(name))
        for name in names
        if is_column(name)
    )
    added = tuple(name for name in known if not name.startswith("-"))
    return added[:MAX_ADDED], tuple(name[1:] for name in known if name.startswith("-"))


def joined(added: Iterable[str], removed: Iterable[str]) -> list[str]:
    """Return the names that `split` takes apart."""
    return [*added, *(f"-{name}" for name in removed)]
