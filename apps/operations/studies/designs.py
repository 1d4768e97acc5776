"""What a study tries: a search space, how it is searched, and spans of time to try it in. Pure."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from typing import Annotated, Any, Final, Literal, Self, TypeAlias, TypedDict

from pydantic import Discriminator, Field, Tag, model_validator

from trainops.plain import Config
from trainops.runtime.config import Strict
from trainops.runtime.config_errors import CHOICE

MAX_OPERATIONS = 500  # of one study
PARALLEL_BY_RESULTS = 4  # default of samplers that go by results
Values: TypeAlias = dict[str, object]  # by dotted path in the config
Method = Literal["grid", "random", "qmc", "tpe", "cmaes"]
BY_RESULTS: Final[frozenset[Method]] = frozenset({"tpe", "cmaes"})


class Range(Strict):
    """An interval of numbers."""

    low: float
    high: float
    log: bool = Field(False, description="Search on a logarithmic scale.")
    whole: bool = Field(False, description="Integers only, both ends included.")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low ({self.low:g}) must be below high ({self.high:g})")
        if not math.isfinite(self.high - self.low):
            raise ValueError(f"{self.low:g}..{self.high:g} is too long for a number")
        if self.log and self.low <= 0:
            raise ValueError("low must be above 0 with log")
        if self.whole and math.ceil(self.low) > math.floor(self.high):
            raise ValueError(f"no integer is in {self.low:g}..{self.high:g}")
        return self


LIST, RANGE = f"{CHOICE}list", f"{CHOICE}range"


def _choice(given: object) -> str:
    """Return which of the two it is, so that errors are about that one only."""
    return RANGE if isinstance(given, Range | Mapping) else LIST


ListOrRange: TypeAlias = Annotated[
    Annotated[list[Any], Tag(LIST)] | Annotated[Range, Tag(RANGE)], Discriminator(_choice)
]


class PathCondition(Strict):
    """When a path has values at all: another path has one of these."""

    path: str
    values: list[Any] = Field(min_length=1)

    def holds(self, chosen: Mapping[str, object]) -> bool:
        return any(is_same(chosen.get(self.path), each) for each in self.values)


class StudyObjective(Strict):
    """A value of the result that is minimised or maximised."""

    metric: str = Field(min_length=1, max_length=80, description="Dotted path in the result.")
    mode: Literal["min", "max"]


class Pruner(Strict):
    """When an operation is stopped early, by a metric that it reports."""

    method: Literal["median", "asha", "hyperband"]
    metric: str = Field("", description="Reported metric. Default: `monitor` of the config.")
    mode: Literal["", "min", "max"] = Field("", description="Default: `mode` of the config.")
    min_reports: int = Field(
        1, ge=1, description="Values of the metric that a trial reports before it may be pruned."
    )
    min_trials: int = Field(
        5, ge=1, description="Completed trials before the first is pruned (median only)."
    )
    reduction: int = Field(
        3, ge=2, le=100, description="Of N trials one continues (asha and hyperband only)."
    )


class WalkForward(Strict):
    """Dated data in folds: values are chosen on one span, and tried on the next."""

    folds: int = Field(4, ge=1, le=50, description="Number of out-of-sample periods.")
    in_sample: float = Field(0.75, ge=0.1, le=0.95, description="In-sample share of each fold.")
    anchored: bool = Field(False, description="Start every fold at the first day.")


class Design(Strict):
    """The search space, and how it is searched."""

    values: dict[str, ListOrRange] = Field(
        description="Values or ranges by dotted path in the config.", max_length=10
    )
    conditions: dict[str, PathCondition] = Field(
        default_factory=dict, description="Paths that have values under a condition only."
    )
    method: Method = Field("grid", description="Sampler.")
    samples: int = Field(20, ge=1, le=MAX_OPERATIONS, description="Number of trials (not grid).")
    seed: int = Field(0, ge=0, description="Random seed of the sampler.")
    parallel: int | None = Field(
        None, ge=1, le=MAX_OPERATIONS,
        description=f"Maximum number of active trials. Default: {PARALLEL_BY_RESULTS} for tpe and "
        "cmaes, otherwise all.",
    )  # fmt: skip
    max_seconds: float | None = Field(
        None, gt=0, description="Compute time of all trials after which no other is submitted."
    )
    further_objectives: list[StudyObjective] = Field(default_factory=list, max_length=3)
    pruner: Pruner | None = None
    walk_forward: WalkForward | None = None

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        if not self.values:
            raise ValueError("at least one path with values is required")
        for path, values in self.values.items():
            if isinstance(values, Range) and self.method == "grid":
                raise ValueError(f"{path}: got a range; allowed with grid: values")
            if isinstance(values, list) and not values:
                raise ValueError(f"{path}: got no values; at least one is required")
        self._check_conditions()
        self._check_method()
        return self

    def _check_conditions(self) -> None:
        for path, condition in self.conditions.items():
            if path not in self.values:
                raise ValueError(f"conditions: got {path!r}; allowed: {', '.join(self.values)}")
            earlier = list(self.values)[: list(self.values).index(path)]
            if condition.path not in earlier:
                allowed = ", ".join(earlier) or "none, as it is the first path"
                raise ValueError(f"conditions.{path}: got {condition.path!r}; allowed: {allowed}")

    def _check_method(self) -> None:
        if self.method in BY_RESULTS and self.walk_forward:
            raise ValueError(f"got {self.method} with walk_forward; allowed: grid, random, qmc")
        if len(self.further_objectives) and (self.method == "cmaes" or self.pruner):
            raise ValueError("cmaes and pruners allow one objective only")
        in_turn = (self.further_objectives, self.pruner, self.parallel, self.max_seconds)
        if self.walk_forward and any(in_turn):
            problem = "no further_objectives, pruner, parallel and max_seconds"
            raise ValueError(f"walk_forward allows {problem}")

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Self:
        """Return a design that was stored."""
        return cls.parse(in_order(row))

    @property
    def num_trials(self) -> int:
        """The number of trials. Raises TooMany."""
        number = self.samples if self.method != "grid" else self._num_combinations
        if number > MAX_OPERATIONS:
            raise TooMany(number)
        return number

    @property
    def _num_combinations(self) -> int:
        return math.prod(len(self.choices(path)) for path in self.values)

    @property
    def max_active(self) -> int:
        by_results = PARALLEL_BY_RESULTS if self.method in BY_RESULTS else MAX_OPERATIONS
        return self.parallel or by_results

    def choices(self, path: str) -> list[object]:
        """Return the listed values of a path, each once; empty: it has a range."""
        listed = self.values[path]
        return (
            list({_key(each): each for each in listed}.values()) if isinstance(listed, list) else []
        )

    def has(self, path: str, chosen: Mapping[str, object]) -> bool:
        """Whether a path has a value where the paths before it have those that were chosen."""
        return path not in self.conditions or self.conditions[path].holds(chosen)


def in_order(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of a stored design with its paths in the order in which values are drawn.

    It is that of PostgreSQL's `jsonb`, which keeps no other, also on SQLite; but each path follows
    that of its condition.
    """
    conditions, paths = row.get("conditions", {}), list[str]()

    def add(path: str) -> None:
        if path in conditions:
            add(conditions[path]["path"])
        if path not in paths:
            paths.append(path)

    for path in sorted(row["values"], key=lambda path: (len(path.encode()), path.encode())):
        add(path)
    return {**row, "values": {path: row["values"][path] for path in paths}}


def is_same(one: object, other: object) -> bool:
    """Whether two values are the same JSON: 1 and true are not."""
    return _key(one) == _key(other)


def _key(value: object) -> str:
    return json.dumps(value, sort_keys=True)


class FoldJson(TypedDict):
    """A fold as JSON; dates as ISO 8601."""

    number: int
    start: str
    split: str
    end: str


class LeftOut(TypedDict):
    """Values that were not submitted, and why."""

    values: Values
    problem: str


class TooMany(ValueError):
    """A study of more operations than one may have."""

    def __init__(self, number: int) -> None:
        super().__init__(f"{number} operations; at most {MAX_OPERATIONS}")


@dataclass(frozen=True, slots=True)
class Fold:
    """Days of one fold: values are chosen on [start, split), and tried on [split, end)."""

    number: int  # from 1
    start: date
    split: date
    end: date

    def to_json(self) -> FoldJson:
        return {
            "number": self.number,
            "start": self.start.isoformat(),
            "split": self.split.isoformat(),
            "end": self.end.isoformat(),
        }

    @classmethod
    def from_json(cls, values: FoldJson) -> Self:
        return cls(
            values["number"],
            date.fromisoformat(values["start"]),
            date.fromisoformat(values["split"]),
            date.fromisoformat(values["end"]),
        )

    def config(self, *, is_test: bool) -> Values:
        """Return the config fields that select one of the two spans."""
        start, until = (self.split, self.end) if is_test else (self.start, self.split)
        return {"start": start.isoformat(), "until": until.isoformat()}


def folds(plan: WalkForward, first: date, last: date) -> list[Fold]:
    """Return the folds over the days from `first` to `last`, both included.

    The tried spans follow one another without a gap, up to the last day. Raises ValueError where
    one would be shorter than a day. Exact: rounding errors could leave a span without a day.
    """
    days = (last - first).days + 1
    share = Fraction(str(plan.in_sample))
    ratio = share / (1 - share)  # of chosen on to tried on, in the first fold
    tried = days / (plan.folds + ratio)
    if tried < 1 or tried * ratio < 1:
        raise ValueError(f"{plan.folds} folds of {days} days: a period would be shorter than a day")
    begin = days - tried * plan.folds

    def day(offset: Fraction) -> date:
        return first + timedelta(days=math.floor(offset + Fraction(1, 2)))

    return [
        Fold(
            number + 1,
            first if plan.anchored else day(number * tried),
            day(begin + number * tried),
            day(begin + (number + 1) * tried),
        )
        for number in range(plan.folds)
    ]


def put(config: Mapping[str, object], values: Mapping[str, object]) -> Config:
    """Return a config with these values in it; what was there is replaced."""
    made = dict(config)
    for path, value in values.items():
        _put(made, path.split("."), value)
    return made


def _put(config: Config, names: Sequence[str], value: object) -> None:
    name, *deeper = names
    if not deeper:
        config[name] = value
        return
    before = config.get(name)
    inner = dict(before) if isinstance(before, Mapping) else {}
    config[name] = inner
    _put(inner, deeper, value)
