"""The rows of the form in which several values of a field are tried: from texts to a design. Pure.

"5, 10, 20" are three values, "5..20:5" those from 5 to 20 by 5. "5..20" is a range, and
"0.001..0.1 log" a range on a logarithmic scale. A row may have a condition: its field has values
only where the field of an earlier row has certain ones.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypeAlias, TypedDict, cast

from apps.dashboard.fields import FormField
from trainops.http.numbers import whole_number
from trainops.runtime.errors import ConfigError

MIN_ROWS = 3  # that are shown
MAX_ROWS = 10  # fields of a study
NUM_OBJECTIVES = 3  # besides the first
PREFIX = "try"
NUMBER = r"-?\d+(?:\.\d+)?(?:[eE]-?\d+)?"
DECIMAL = re.compile(r"\d+(?:\.\d+)?")
MAX_DIGITS = 20
LARGEST_WHOLE = 1e15  # that is written without an exponent
RANGE = re.compile(rf"({NUMBER})\s*\.\.\s*({NUMBER})(?:\s*:\s*({NUMBER}))?(\s+log)?")
TRIABLE = ("number", "integer", "choice", "text", "switch")
MAX_STEPS = 1000
GRID = "grid"  # the sampler where none is chosen
METHODS = {
    GRID: "Grid: every combination",
    "random": "Random",
    "qmc": "Quasi-random (QMC)",
    "tpe": "TPE: by results",
    "cmaes": "CMA-ES: by results, numbers only",
}
PRUNERS = {"": "None", "median": "Median", "asha": "ASHA", "hyperband": "Hyperband"}
PRUNER_NUMBERS = ("min_reports", "min_trials", "reduction")
MODES = {"": "", "min": "lower is better", "max": "higher is better"}
SEARCH = (  # fields of the form
    "method", "samples", "seed", "parallel", "max_seconds", "metric", "mode",
    "pruner", "pruner_metric", "pruner_mode", *PRUNER_NUMBERS, "folds", "in_sample", "anchored",
)  # fmt: skip
Typed: TypeAlias = Mapping[str, str]  # what a form contains, by name


@dataclass(frozen=True, slots=True)
class Try:
    """One row: a field, the texts of its values, and the condition under which it has them."""

    number: int
    path: str = ""
    text: str = ""
    condition_path: str = ""
    condition_text: str = ""


@dataclass(frozen=True, slots=True)
class TypedObjective:
    """A further objective, as it was typed."""

    number: int
    metric: str = ""
    mode: str = ""


class RangeFields(TypedDict):
    """Values drawn from an interval."""

    low: float
    high: float
    log: bool
    whole: bool


class ConditionFields(TypedDict):
    """The values that another field must have."""

    path: str
    values: list[object]


class ObjectiveFields(TypedDict):
    """A value of the result, and which of its values are better."""

    metric: str
    mode: str


class WalkForwardFields(TypedDict):
    """The folds of dated data."""

    folds: int
    in_sample: NotRequired[float]
    anchored: NotRequired[bool]


class PrunerFields(TypedDict):
    """The method that stops trials early."""

    method: str
    metric: NotRequired[str]
    mode: NotRequired[str]
    min_reports: NotRequired[int]
    min_trials: NotRequired[int]
    reduction: NotRequired[int]


class DesignFields(TypedDict):
    """The design of a study, by path of the field."""

    values: dict[str, list[object] | RangeFields]
    conditions: NotRequired[dict[str, ConditionFields]]
    method: str
    samples: NotRequired[int]
    seed: NotRequired[int]
    parallel: NotRequired[int]
    max_seconds: NotRequired[float]
    further_objectives: NotRequired[list[ObjectiveFields]]
    pruner: NotRequired[PrunerFields]
    walk_forward: NotRequired[WalkForwardFields]


def read(posted: Typed | None) -> list[Try]:
    """Return the rows as they were typed, up to the last that is not blank, at least MIN_ROWS."""
    rows = [Try(number, *_row(posted or {}, number)) for number in range(MAX_ROWS)]
    used = [row.number + 1 for row in rows if row != Try(row.number)]
    return rows[: max(MIN_ROWS, *used, 0)]


def _row(posted: Typed, number: int) -> list[str]:
    names = ("path", "values", "condition_path", "condition_values")
    return [posted.get(f"{PREFIX}.{number}.{name}", "").strip() for name in names]


def objectives(posted: Typed | None) -> list[TypedObjective]:
    """Return the further objectives as they were typed, also blank ones."""
    return [
        TypedObjective(
            number,
            (posted or {}).get(f"{PREFIX}.objective.{number}.metric", "").strip(),
            (posted or {}).get(f"{PREFIX}.objective.{number}.mode", ""),
        )
        for number in range(NUM_OBJECTIVES)
    ]


def search(posted: Typed | None) -> dict[str, str]:
    """Return the fields of SEARCH as they were typed."""
    return {name: (posted or {}).get(f"{PREFIX}.{name}", "").strip() for name in SEARCH}


def typed(posted: Typed) -> list[tuple[str, str]]:
    """Return names and texts of the fields of a study that are not blank."""
    texts = ((name, posted.get(name, "")) for name in posted if name.startswith(f"{PREFIX}."))
    return [(name, text) for name, text in texts if text.strip()]


def is_wanted(posted: Typed) -> bool:
    """Whether anything is typed for a study; the sampler has a value in every form."""
    return any(name != f"{PREFIX}.method" or text != GRID for name, text in typed(posted))


def choices(fields: Sequence[FormField]) -> list[FormField]:
    """Return the fields of which several values can be tried."""
    return [field for field in fields if field.kind in TRIABLE]


def design(posted: Typed, fields: Sequence[FormField]) -> DesignFields:
    """Return the design that was typed. Raises ConfigError, which names what cannot be read."""
    by_path = {field.path: field for field in choices(fields)}
    rows = _rows(posted, by_path)
    typed = search(posted)
    made: DesignFields = {
        "values": {row.path: values_of(by_path[row.path], row.text) for row in rows},
        "method": typed["method"] or GRID,
    }
    if conditions := {row.path: _condition(row, by_path) for row in rows if _is_bound(row)}:
        made["conditions"] = conditions
    for name in ("samples", "seed", "parallel"):
        if typed[name] and (name != "samples" or made["method"] != GRID):
            made[name] = _whole(typed, name)
    if typed["max_seconds"]:
        made["max_seconds"] = _number(typed, "max_seconds")
    if further := [_objective(each) for each in objectives(posted) if each.metric or each.mode]:
        made["further_objectives"] = further
    if pruner := _pruner(typed):
        made["pruner"] = pruner
    if folds := _walk_forward(typed):
        made["walk_forward"] = folds
    return made


def _rows(posted: Typed, by_path: Mapping[str, FormField]) -> list[Try]:
    """Return the rows that are not blank. Raises ConfigError for one that is not a whole row."""
    numbers = [name.split(".")[1] for name, _ in typed(posted)]
    if beyond := [each for each in numbers if each.isdecimal() and int(each) >= MAX_ROWS]:
        problem = f"got row {int(beyond[0]) + 1}; allowed: up to {MAX_ROWS} fields"
        raise ConfigError({"design.values": problem})
    rows = [row for row in read(posted) if row != Try(row.number)]
    problems: dict[str, str] = {}
    seen: set[str] = set()
    for row in rows:
        if problem := _row_problem(row, by_path, seen):
            problems[f"design.values.{row.path or row.number + 1}"] = problem
        seen.add(row.path)
    if not rows:
        problems["design.values"] = "got no values to try; allowed: fields with values"
    if problems:
        raise ConfigError(problems)
    return rows


def _row_problem(row: Try, by_path: Mapping[str, FormField], seen: Collection[str]) -> str:
    where = f"row {row.number + 1}"
    if not row.path:
        given = row.text or row.condition_path or row.condition_text
        return f"got {given[:80]!r} in {where} without a field; allowed: one field in each row"
    if row.path not in by_path:
        return f"got {row.path[:80]!r} in {where}; allowed: fields of this recipe"
    if row.path in seen:
        return f"got the field again in {where}; allowed: one row for each field"
    if not row.text:
        return f"got no values in {where}; allowed: values with commas, or a range"
    return ""


def _is_bound(row: Try) -> bool:
    return bool(row.condition_path or row.condition_text)


def _condition(row: Try, by_path: Mapping[str, FormField]) -> ConditionFields:
    where = f"design.conditions.{row.path}"
    if row.condition_path not in by_path:
        problem = f"got {row.condition_path[:80]!r}; allowed: the field of an earlier row"
        raise ConfigError({where: problem})
    try:
        values = values_of(by_path[row.condition_path], row.condition_text)
    except ConfigError as error:  # it names the other field
        raise ConfigError({where: "; ".join(map(str, error.errors.values()))}) from error
    if not isinstance(values, list) or not values:
        problem = f"got {row.condition_text[:80]!r}; allowed: values with commas"
        raise ConfigError({where: problem})
    return {"path": row.condition_path, "values": values}


def _objective(given: TypedObjective) -> ObjectiveFields:
    where = f"design.further_objectives.{given.number}"
    if not given.metric:
        raise ConfigError({where: "got no metric; allowed: a dotted path in the result"})
    if given.mode not in ("min", "max"):
        raise ConfigError({where: f"got {given.mode[:20]!r} for {given.metric}; allowed: min, max"})
    return {"metric": given.metric, "mode": given.mode}


def objective(posted: Typed) -> ObjectiveFields:
    """Return the metric and the mode of the study that were typed; blank: those of the kind."""
    typed = search(posted)
    return {"metric": typed["metric"], "mode": typed["mode"]}


def _pruner(typed: Mapping[str, str]) -> PrunerFields | None:
    given = [name for name in PRUNER_NUMBERS if typed[name]]
    texts = [name for name in ("metric", "mode") if typed[f"pruner_{name}"]]
    if typed["pruner"]:
        pruner: PrunerFields = {"method": typed["pruner"]}
        for name in given:
            pruner[name] = _whole(typed, name)  # type: ignore[literal-required] # one of its keys
        for name in texts:
            pruner[name] = typed[f"pruner_{name}"]  # type: ignore[literal-required] # as above
        return pruner
    if given or texts:
        allowed = ", ".join(name for name in PRUNERS if name)
        problem = f"got {[*given, *texts][0]} without a pruner; allowed with it: {allowed}"
        raise ConfigError({"design.pruner": problem})
    return None


def _walk_forward(typed: Mapping[str, str]) -> WalkForwardFields | None:
    more = [name for name in ("in_sample", "anchored") if typed[name]]
    if not typed["folds"]:
        if more:
            problem = f"got {more[0]} without folds; allowed with it: their number"
            raise ConfigError({"design.walk_forward": problem})
        return None
    made: WalkForwardFields = {"folds": _whole(typed, "folds", of="walk_forward.")}
    if typed["in_sample"]:
        made["in_sample"] = _number(typed, "in_sample", of="walk_forward.")
    if typed["anchored"]:
        made["anchored"] = True
    return made


def texts_of(design: Mapping[str, Any], metric: str, mode: str) -> dict[str, str]:
    """Return what the form contains for a design, by name: the inverse of `design`.

    A design that the form has no place for gives texts that mean another one.
    """
    texts: dict[str, object] = {"metric": metric, "mode": mode}
    conditions = design.get("conditions") or {}
    for number, (path, values) in enumerate((design.get("values") or {}).items()):
        texts |= {f"{number}.path": path, f"{number}.values": _text_of(values)}
        if condition := conditions.get(path):
            texts[f"{number}.condition_path"] = condition.get("path")
            texts[f"{number}.condition_values"] = _text_of(condition.get("values"))
    for name in ("method", "samples", "seed", "parallel", "max_seconds"):
        texts[name] = design.get(name)
    for number, objective in enumerate(design.get("further_objectives") or []):
        texts |= {f"objective.{number}.{name}": each for name, each in objective.items()}
    pruner = dict(design.get("pruner") or {})
    texts["pruner"] = pruner.pop("method", None)
    for name, each in pruner.items():
        texts[f"pruner_{name}" if name in ("metric", "mode") else name] = each
    texts |= design.get("walk_forward") or {}
    return {
        f"{PREFIX}.{name}": _text(each)
        for name, each in texts.items()
        if each is not None and each is not False
    }


def _text_of(values: object) -> str:
    """Return the text of values or of a range."""
    if isinstance(values, Mapping):
        log = " log" if values.get("log") else ""
        return f"{_text(values.get('low'))}..{_text(values.get('high'))}{log}"
    return ", ".join(map(_text, values if isinstance(values, list) else [values]))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < LARGEST_WHOLE
    return str(int(cast(float, value)) if is_whole else value)


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


def _number(typed: Mapping[str, str], name: str, of: str = "") -> float:
    """Return a number of the form that may have decimals."""
    text = typed[name]
    if len(text) > MAX_DIGITS or not DECIMAL.fullmatch(text):
        raise ConfigError({f"design.{of}{name}": f"got {text[:20]!r}; must be a number"})
    return float(text)


def _whole(typed: Mapping[str, str], name: str, of: str = "") -> int:
    """Return a number of the form."""
    number = whole_number(typed[name], 0, 9_999_999)
    if number is None:
        problem = f"got {typed[name][:20]!r}; must be a whole number"
        raise ConfigError({f"design.{of}{name}": problem})
    return number
