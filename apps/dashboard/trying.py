"""The rows of the form in which several values of a field are tried: from texts to a design. Pure.

"5, 10, 20" are three values, "5..20:5" those from 5 to 20 by 5. "5..20" is a range, and
"0.001..0.1 log" a range on a logarithmic scale.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict

from django.http import QueryDict

from apps.dashboard.fields import FormField
from trainops.http.numbers import whole_number
from trainops.runtime.errors import ConfigError

ROWS = 3
PREFIX = "try"
NUMBER = r"-?\d+(?:\.\d+)?(?:[eE]-?\d+)?"
RANGE = re.compile(rf"({NUMBER})\s*\.\.\s*({NUMBER})(?:\s*:\s*({NUMBER}))?(\s+log)?")
TRIABLE = ("number", "integer", "choice", "text", "switch")
MAX_STEPS = 1000
METHODS = {
    "grid": "Grid: every combination",
    "random": "Random",
    "qmc": "Quasi-random (QMC)",
    "tpe": "TPE: by results",
    "cmaes": "CMA-ES: by results, numbers only",
}
PRUNERS = {"": "None", "median": "Median", "asha": "ASHA", "hyperband": "Hyperband"}
PRUNER_NUMBERS = ("min_reports", "min_trials", "reduction")
SEARCH = (  # fields of the form
    "method", "samples", "seed", "parallel", "max_seconds", "pruner", *PRUNER_NUMBERS, "folds",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Try:
    """One row: a field, and the texts of its values."""

    number: int
    path: str = ""
    text: str = ""


class RangeFields(TypedDict):
    """Values drawn from an interval."""

    low: float
    high: float
    log: bool
    whole: bool


class WalkForwardFields(TypedDict):
    """The number of folds."""

    folds: int


class PrunerFields(TypedDict):
    """The method that stops trials early."""

    method: str
    min_reports: NotRequired[int]
    min_trials: NotRequired[int]
    reduction: NotRequired[int]


class DesignFields(TypedDict):
    """The design of a study, by path of the field."""

    values: dict[str, list[object] | RangeFields]
    method: str
    samples: NotRequired[int]
    seed: NotRequired[int]
    parallel: NotRequired[int]
    max_seconds: NotRequired[int]
    pruner: NotRequired[PrunerFields]
    walk_forward: NotRequired[WalkForwardFields]


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


def search(posted: QueryDict | None) -> dict[str, str]:
    """Return the fields of SEARCH as they were typed."""
    if posted is None:
        return dict.fromkeys(SEARCH, "")
    return {name: posted.get(f"{PREFIX}.{name}", "").strip() for name in SEARCH}


def typed(posted: QueryDict) -> list[tuple[str, str]]:
    """Return names and texts of the fields of a study that are not blank; none without values."""
    if not is_wanted(posted):
        return []
    texts = ((name, posted.get(name, "")) for name in posted if name.startswith(f"{PREFIX}."))
    return [(name, text) for name, text in texts if text]


def is_wanted(posted: QueryDict) -> bool:
    return any(row.path and row.text for row in read(posted))


def choices(fields: Sequence[FormField]) -> list[FormField]:
    """Return the fields of which several values can be tried."""
    return [field for field in fields if field.kind in TRIABLE]


def design(posted: QueryDict, fields: Sequence[FormField]) -> DesignFields:
    """Return the design that was typed. Raises ConfigError, which names what cannot be read."""
    by_path = {field.path: field for field in choices(fields)}
    values = {
        row.path: values_of(by_path[row.path], row.text)
        for row in read(posted)
        if row.text and row.path in by_path
    }
    typed = search(posted)
    made: DesignFields = {"values": values, "method": typed["method"] or "grid"}
    for name in ("samples", "seed", "parallel", "max_seconds"):
        if typed[name] and (name != "samples" or made["method"] != "grid"):
            made[name] = _whole(typed, name)
    if pruner := _pruner(typed):
        made["pruner"] = pruner
    if typed["folds"]:
        made["walk_forward"] = {"folds": _whole(typed, "folds")}
    return made


def _pruner(typed: Mapping[str, str]) -> PrunerFields | None:
    given = [name for name in PRUNER_NUMBERS if typed[name]]
    if typed["pruner"]:
        pruner: PrunerFields = {"method": typed["pruner"]}
        for name in given:
            pruner[name] = _whole(typed, name)  # type: ignore[literal-required] # one of its keys
        return pruner
    if given:
        allowed = ", ".join(name for name in PRUNERS if name)
        problem = f"got {given[0]} without a pruner; allowed with it: {allowed}"
        raise ConfigError({"design.pruner": problem})
    return None


def values_of(field: FormField, text: str) -> list[object] | RangeFields:
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
        problem = f"got {text!r}; allowed: values, or a range such as 5..20:5"
        raise ConfigError({f"design.values.{field.path}": problem})
    steps = [first + by * number for number in range(int(count + 1e-9) + 1)]
    return [round(each) if is_whole else float(f"{each:.12g}") for each in steps]


def _one(field: FormField, text: str) -> object:
    if field.kind == "switch":
        if text.lower() not in ("true", "false"):
            problem = f"got {text!r}; allowed: true, false"
            raise ConfigError({f"design.values.{field.path}": problem})
        return text.lower() == "true"
    return field.value([text])


def _whole(typed: Mapping[str, str], name: str) -> int:
    """Return a number of the form."""
    number = whole_number(typed[name], 0, 9_999_999)
    if number is None:
        raise ConfigError({f"design.{name}": f"got {typed[name][:20]!r}; must be a whole number"})
    return number
