"""Completions of a query's last word: names of terms and values, and what may follow a colon."""

from collections.abc import Iterable

from django.contrib.auth.models import User
from django.db.models import Model

from apps.operations.indexes import is_
from apps.operations.models import Operation, Tag
from apps.operations.search.columns import OWN, joined
from apps.operations.search.conditions import FIELDS
from apps.operations.search.language import quoted, starts
from apps.operations.search.values import COLUMNS, config_fields, parameters
from trainops.recipes import recipes

MAX_COMPLETIONS = 12
NUM_RECENT = 200  # operations whose metrics are offered
STORED: dict[str, tuple[type[Model], str]] = {  # term -> the column that holds its values
    "tag": (Tag, "name"),
    "owner": (User, "username"),
    "project": (Operation, "project"),
}


def completions(query: str) -> list[str]:
    """Return queries that begin with `query` and complete its last word."""
    start = starts(f"{query}x")[-1]
    before, word = query[:start], query[start:]
    sign, word = ("-", word[1:]) if word.startswith("-") else ("", word)
    if not word:
        return []
    name, colon, value = word.partition(":")
    words = _values(name, value) if colon else _names(word)
    return [before + sign + each for each in words if each != word][:MAX_COMPLETIONS]


def column_completions(columns: str) -> list[str]:
    """Return names of columns, separated by spaces, with each that completes the last one."""
    start = starts(f"{columns}x")[-1]
    before, word = columns[:start], columns[start:]
    names = joined((), OWN) if word.startswith("-") else _quoted_names()
    found = [before + each for each in names if _completes(each, word) and each != word]
    return found[:MAX_COMPLETIONS]


def _values(name: str, value: str) -> list[str]:
    """Return `name:` with each value that begins so; of several, the last is completed."""
    first, comma, last = value.rpartition(",")
    field = FIELDS.get(name.lower())
    if field is None:
        return []
    found = field.allowed or _stored(name.lower(), last)
    return [f"{name}:{first}{comma}{_quoted(each)}" for each in found if _begins(each, last)]


def _quoted(value: str) -> str:
    return f'"{value}"' if " " in value or "," in value else value


def _stored(name: str, start: str) -> list[str]:
    """Return the values of a term: registered recipes, or what rows hold."""
    if name == "recipe":
        return sorted(recipes())
    if name not in STORED:
        return []
    model, column = STORED[name]
    rows = model._default_manager.filter(is_(column, "> ''"), **{f"{column}__istartswith": start})
    found = rows.order_by().values_list(column, flat=True).distinct()
    return list(found[:MAX_COMPLETIONS])


def _names(word: str) -> list[str]:
    """Return names of terms and values that begin so, with or without a quotation mark."""
    names = (*(f"{name}:" for name in FIELDS), *_quoted_names())
    return [each for each in names if _completes(each, word)]


def _quoted_names() -> list[str]:
    return [quoted(name) for name in _measured() if '"' not in name]


def _completes(name: str, word: str) -> bool:
    """Whether a name begins so, with or without a quotation mark."""
    return _begins(name, word) or _begins(name, f'"{word}')


def _measured() -> list[str]:
    """Return what can be compared or shown as a column: metrics, config fields, parameters."""
    measured = metrics()
    values = sorted({*measured, *COLUMNS, *config_fields(), *parameters()})
    return values + sorted(f"best({name})" for name in measured)


def metrics() -> set[str]:
    """Return the names of the metrics of recent operations."""
    recent = Operation.objects.values_list("metrics", flat=True)[:NUM_RECENT]
    return {name for values in recent for name in _keys(values)}


def _keys(values: object) -> Iterable[str]:
    return values if isinstance(values, dict) else ()


def _begins(text: str, start: str) -> bool:
    return text.lower().startswith(start.lower())
