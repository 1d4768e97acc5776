"""Values of operations that queries name: columns, config fields, latest values of metrics."""

import json
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BooleanField, CharField, Expression, F, FloatField, Func
from django.db.models.sql.compiler import SQLCompiler

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
Path = tuple[str | int, ...]  # keys of objects, and indexes of lists
_INDEX = re.compile(r"[0-9]{1,9}")


class _JsonAt(Func):
    """What a JSON column holds at a path; null where that is nothing or of another type."""

    sqlite: str
    postgresql: str

    def __init__(self, column: str, path: Path, **extra: Any) -> None:
        self.path = path
        super().__init__(F(column), **extra)

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_: Any
    ) -> tuple[str, tuple[Any, ...]]:
        return self._sql(self.sqlite, _json_path(self.path), compiler)

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_: Any
    ) -> tuple[str, tuple[Any, ...]]:
        return self._sql(self.postgresql, f"strict {_json_path(self.path)}", compiler)

    def _sql(self, template: str, path: str, compiler: SQLCompiler) -> tuple[str, tuple[str, ...]]:
        column, _ = compiler.compile(self.source_expressions[0])
        return template.replace("COLUMN", column), (path,) * template.count("%s")


def _json_path(path: Path) -> str:
    """Return the JSON path, whose basic form is the same in both databases."""
    return "$" + "".join(f"[{p}]" if isinstance(p, int) else f".{json.dumps(p)}" for p in path)


_FOUND = "jsonb_path_query_first(COLUMN, %s::jsonpath, '{}', true)"  # true: null, not an error


class NumberAt(_JsonAt):
    output_field = FloatField()
    sqlite = (
        "CASE WHEN JSON_TYPE(COLUMN, %s) IN ('integer', 'real')"
        " THEN JSON_EXTRACT(COLUMN, %s) + 0.0 END"
    )
    postgresql = (
        f"CASE WHEN jsonb_typeof({_FOUND}) = 'number' THEN ({_FOUND})::double precision END"
    )


class TextAt(_JsonAt):
    """Text, or what JSON calls true and false; numbers as the database writes them."""

    output_field = CharField()
    sqlite = (
        "CASE JSON_TYPE(COLUMN, %s) WHEN 'true' THEN 'true' WHEN 'false' THEN 'false'"
        " ELSE CAST(JSON_EXTRACT(COLUMN, %s) AS TEXT) END"
    )
    postgresql = f"({_FOUND} #>> '{{}}')"


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


def is_set(column: str) -> Func:
    """Return the condition that a column of text is not empty.

    Written out, not with a parameter: SQLite uses a partial index only for the condition of the
    index itself.
    """
    template = "%(expressions)s > ''"
    return Func(F(column), template=template, output_field=BooleanField())


def named(name: str) -> Named:
    """Return the value called `name`: a column, else a config field, else a metric's latest value.

    The prefixes `config.` and `metric.` choose. A recipe's parameter needs no `parameters.`.
    """
    if name.startswith(METRIC):
        return Named(name.removeprefix(METRIC), METRICS, (name.removeprefix(METRIC),))
    if name.startswith(CONFIG):
        return _config(name.removeprefix(CONFIG))
    if name in COLUMNS:
        return Named(name, COLUMNS[name])
    if name.split(".")[0] in config_fields() or name in parameters():
        return _config(name)
    return Named(name, METRICS, (name,))


def _config(name: str) -> Named:
    is_parameter = name.split(".")[0] not in config_fields() and name in parameters()
    return Named(name, "config", ("parameters", name) if is_parameter else path_of(name))


def path_of(name: str) -> Path:
    """Return the parts of a dotted name; a number is an index of a list."""
    return tuple(int(part) if _INDEX.fullmatch(part) else part for part in name.split("."))


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
