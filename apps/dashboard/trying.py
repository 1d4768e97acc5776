"""The rows of the form in which several values of a field are tried: from texts to a design. Pure.

"5, 10, 20" are three values, "5..20:5" those from 5 to 20 by 5. For random numbers "5..20" is a
range, and "0.001..0.1 log" one in which each factor is as likely as any other.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict

from apps.dashboard.fields import Field
from trainops.http.numbers import whole_number
from trainops.runtime.errors import ConfigError

ROWS = 3
PREFIX = "try"
NUMBER = r"-?\d+(?:\.\d+)?(?:[eE]-?\d+)?"
RANGE = re.compile(rf"({NUMBER})\s*\.\.\s*({NUMBER})(?:\s*:\s*({NUMBER}))?(\s+log)?")
TRIABLE = ("number", "integer", "choice", "text", "switch")
MAX_STEPS = 1000


@dataclass(frozen=True, slots=True)
class Try:
    """One row: a field, and the texts of its values."""

    number: int
    path: str = ""
    text: str = ""


def read(posted: QueryDict | None) -> list[Try]:
    """Return the rows as they were typed."""
    if posted is None:
        return [Try(number) for number in range(ROWS)]
    return [
        Try(
            number,
            posted.get(f"{PREFIX}.{number}.path", ""),
            posted.get(f"{PREFIX}.{number}.values", "").strip(),
        )
        for number in range(ROWS)
    ]


def is_wanted(posted: QueryDict) -> bool:
    return any(row.path and row.text for row in read(posted))


def choices(fields: Sequence[Field]) -> list[Field]:
    """Return the fields of which several values can be tried."""
    return [field for field in fields if field.kind in TRIABLE]


def design(posted: QueryDict, fields: Sequence[Field]) -> dict[str, Any]:
    """Return the design that was typed. Raises ConfigError, which names what cannot be read."""
    by_path = {field.path: field for field in choices(fields)}
    values = {
        row.path: values_of(by_path[row.path], row.text)
        for row in read(posted)
        if row.text and row.path in by_path
    }
    made: dict[str, Any] = {"values": values, "method": posted.get("try.method", "grid")}
    if made["method"] == "random":
        made["samples"] = _whole(posted, "samples", 20)
    if folds := _whole(posted, "folds", 0):
        made["walk_forward"] = {"folds": folds}
    return made


def values_of(field: Field, text: str) -> list[Any] | Mapping[str, Any]:
    """Return the values, or the range, that a text means for a field. Raises ConfigError."""
    match = RANGE.fullmatch(text)
    if match is None or field.kind not in ("number", "integer"):
        return [_one(field, part.strip()) for part in text.split(",") if part.strip()]
    low, high, step, log = match.groups()
    is_whole = field.kind == "integer"
    if step is None:
        return {"low": float(low), "high": float(high), "log": bool(log), "whole": is_whole}
    first, by = float(low), float(step)
    count = (float(high) - first) / by if by else -1.0
    if not 0 <= count < MAX_STEPS:
        raise ConfigError({f"design.values.{field.path}": f"got {text!r}; e.g. 5..20:5"})
    steps = [first + by * number for number in range(int(count + 1e-9) + 1)]
    return [round(each) if is_whole else float(f"{each:.12g}") for each in steps]


def _one(field: Field, text: str) -> Any:
    if field.kind == "switch":
        if text.lower() not in ("true", "false"):
            problem = f"got {text!r}; allowed: true, false"
            raise ConfigError({f"design.values.{field.path}": problem})
        return text.lower() == "true"
    return field.value([text])


def _whole(posted: QueryDict, name: str, otherwise: int) -> int:
    text = posted.get(f"{PREFIX}.{name}", "").strip()
    if not text:
        return otherwise
    number = whole_number(text, 0, 999_999)
    if number is None:
        raise ConfigError({f"design.{name}": f"got {text[:20]!r}; must be a whole number"})
    return number
