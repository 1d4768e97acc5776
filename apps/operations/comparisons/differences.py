"""Nested values side by side: flattened to dotted paths, and only those that differ. Pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypedDict


class Difference(TypedDict):
    """A path whose values differ; an operation without the path has no value."""

    path: str
    values: dict[str, object]  # by operation id


@dataclass(frozen=True, slots=True)
class Differences:
    """The paths that differ, in order of their first occurrence, and the number of the others."""

    rows: list[Difference]
    num_equal: int


def flatten(values: Mapping[str, object], before: str = "") -> dict[str, object]:
    """Return the leaves of nested mappings by dotted path; lists and empty mappings are leaves."""
    leaves: dict[str, object] = {}
    for name, value in values.items():
        path = f"{before}{name}"
        if isinstance(value, Mapping) and value:
            leaves |= flatten(value, f"{path}.")
        else:
            leaves[path] = value
    return leaves


def differing(leaves: Mapping[str, Mapping[str, object]]) -> Differences:
    """Return what differs between operations; `leaves`: id → path → value, plain JSON.

    An absent path differs from every value, null included. 1 and 1.0 are equal, 1 and true are not.
    """
    rows = [
        Difference(
            path=path,
            values={each: mine[path] for each, mine in leaves.items() if path in mine},
        )
        for path, texts in distinct(leaves.values()).items()
        if len(texts) > 1 or any(path not in mine for mine in leaves.values())
    ]
    paths = {path for mine in leaves.values() for path in mine}
    return Differences(rows, len(paths) - len(rows))


def distinct(rows: Iterable[Mapping[str, object]]) -> dict[str, set[str]]:
    """Return the distinct values of each path, as text, in order of their first occurrence."""
    found: dict[str, set[str]] = {}
    for row in rows:
        for path, value in row.items():
            found.setdefault(path, set()).add(_text(value))
    return found


def equal(one: object, other: object) -> bool:
    """Whether two values do not differ."""
    return _text(one) == _text(other)


def _text(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True, default=str)
