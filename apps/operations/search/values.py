"""Values of operations that queries name: columns, config fields, latest values of metrics."""

import re
from dataclasses import dataclass
from functools import cache
from typing import TypeGuard

from django.db.models import Expression, F

from apps.operations.search.best import BestValue, best_of
from apps.operations.search.json_values import KeyOrIndex, NumberAt, Path, TextAt
from apps.operations.search.language import unquoted
from trainops.kind import KINDS
from trainops.recipes import recipes

COLUMNS = {  # name in queries -> column that holds a number
    "attempt": "attempt",
    "step": "step",
    "priority": "priority",
    "restarts": "restarts_used",
    "steps_per_second": "steps_per_second",
}
METRIC, CONFIG = "metric.", "config."
METRICS = "metrics"  # the column with the latest values
_INDEX = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Named:
    """A value that a query or a column names."""

    name: str  # without a prefix that only says where it is
    column: str
    path: Path = ()

    @property
    def number(self) -> Expression | F:
        return NumberAt(self.column, self.path) if self.path else F(self.column)

    @property
    def text(self) -> Expression | F:
        return TextAt(self.column, self.path) if self.path else F(self.column)


def named(name: str) -> Named | BestValue:
    """Return the value called `name`: a column, else a config field, else a metric's latest value.

    `best(NAME)` is the best value of a metric over the run.
    The prefixes `config.` and `metric.` choose. A recipe's parameter needs no `parameters.`.
    The name may be in quotation marks.
    """
    name = unquoted(name)
    if best := best_of(name):
        return best
    if name.startswith(METRIC):
        return Named(name.removeprefix(METRIC), METRICS, (name.removeprefix(METRIC),))
    if name.startswith(CONFIG):
        return _config(name.removeprefix(CONFIG))
    if name in COLUMNS:
        return Named(name, COLUMNS[name])
    if name.split(".")[0] in config_fields() or name in parameters():
        return _config(name)
    return Named(name, METRICS, (name,))


def is_latest(value: Named | BestValue | None) -> TypeGuard[Named]:
    """Whether it is the latest value of a metric."""
    return isinstance(value, Named) and value.column == METRICS


def _config(name: str) -> Named:
    is_parameter = name.split(".")[0] not in config_fields() and name in parameters()
    return Named(name, "config", ("parameters", name) if is_parameter else path_of(name))


def path_of(name: str) -> Path:
    """Return the parts of a dotted name; a number is an index of a list, or a key."""
    return tuple(KeyOrIndex(part) if _INDEX.fullmatch(part) else part for part in name.split("."))


@cache
def config_fields() -> frozenset[str]:
    """The fields of the configs of all kinds."""
    return frozenset(
        name for kind in KINDS.values() for name in kind.json_schema().get("properties", {})
    )


@cache
def parameters() -> frozenset[str]:
    """The parameters of all recipes."""
    return frozenset(
        name for recipe in recipes().values() for name in recipe.json_schema().get("properties", {})
    )
