"""What operations are drawn over: config fields that differ, and values of metrics. Pure."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import isfinite
from typing import Final, Literal, TypeAlias, TypedDict

from apps.operations.comparisons.differences import Difference, distinct
from apps.operations.comparisons.values import ValueRow, What
from apps.operations.search.directions import Mode

Scalar: TypeAlias = float | str | None
FIELD: Final = "field"
MAX_CHARS = 80  # of a value that is no number
MAX_FIELDS = 60


class Dimension(TypedDict):
    """One value of each operation, in their order; null where an operation has none.

    `key` names it in requests: the path of a field, or the metric and what its value is.
    """

    key: str
    name: str
    what: Literal["field"] | What
    mode: Mode | None
    values: list[Scalar]


def field(path: str, values: Iterable[Scalar]) -> Dimension:
    return {"key": path, "name": path, "what": FIELD, "mode": None, "values": list(values)}


def value(name: str, what: What, mode: Mode | None, values: Iterable[float | None]) -> Dimension:
    return {
        "key": f"{name} {what}",
        "name": name,
        "what": what,
        "mode": mode,
        "values": [each if each is not None and isfinite(each) else None for each in values],
    }


def of_comparison(
    ids: Sequence[str], config: Iterable[Difference], rows: Iterable[ValueRow]
) -> list[Dimension]:
    """Return the fields of the config that differ, those with most values first, then values."""
    fields = [field(row["path"], [scalar(row["values"], each) for each in ids]) for row in config]
    fields.sort(key=lambda each: -len(set(each["values"])))
    values = [
        value(row["name"], row["what"], row["mode"], (_number(row, each) for each in ids))
        for row in rows
    ]
    return [*fields[:MAX_FIELDS], *with_values(values)]


def of_leaves(leaves: Sequence[Mapping[str, object]]) -> list[Dimension]:
    """Return the fields in which the leaves of operations differ, those with most values first."""
    texts = distinct(leaves)
    missing = {path: any(path not in each for each in leaves) for path in texts}
    differing = [path for path in texts if len(texts[path]) + missing[path] > 1]
    ordered = sorted(differing, key=lambda path: -len(texts[path]))
    return [field(path, (scalar(mine, path) for mine in leaves)) for path in ordered[:MAX_FIELDS]]


def with_values(dimensions: Iterable[Dimension]) -> list[Dimension]:
    """Return those in which an operation has a value."""
    return [each for each in dimensions if any(value is not None for value in each["values"])]


def scalar(values: Mapping[str, object], key: str) -> Scalar:
    """Return a value as a finite number or as text, cut after MAX_CHARS; None if it is absent."""
    if key not in values:
        return None
    found = values[key]
    if isinstance(found, int | float) and not isinstance(found, bool) and isfinite(found):
        return found
    text = found if isinstance(found, str) and found else json.dumps(found, ensure_ascii=False)
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}…"


def _number(row: ValueRow, operation_id: str) -> float | None:
    cell = row["values"].get(operation_id)
    return None if cell is None or isinstance(cell["value"], str) else cell["value"]


def default_target(dimensions: Sequence[Dimension], monitored: Collection[str] = ()) -> str:
    """Return the key of the value that judges by default; empty without any value.

    It is the one that most operations have; among those one of the `monitored` metrics, one with a
    direction, a best one, the first.
    """
    values = [each for each in dimensions if each["what"] != FIELD]

    def rank(each: Dimension) -> tuple[int, bool, bool, bool]:
        num_missing = sum(value is None for value in each["values"])
        is_other = each["name"] not in monitored
        return num_missing, is_other, each["mode"] is None, each["what"] == "final"

    return min(values, key=rank)["key"] if values else ""
