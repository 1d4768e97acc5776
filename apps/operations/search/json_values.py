"""What JSON columns hold at a path, on both databases."""

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import CharField, F, FloatField, Func
from django.db.models.sql.compiler import SQLCompiler

MAX_EITHER = 3  # numbers in a path that may be keys; further ones are indexes


class KeyOrIndex(str):
    """Digits in a path: the index of a list, or a key of an object."""

    __slots__ = ()


Path: TypeAlias = tuple[str | int, ...]  # keys of objects, indexes of lists, and either


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
        return self._sql(self.sqlite, _json_paths(self.path), compiler)

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_: Any
    ) -> tuple[str, tuple[Any, ...]]:
        strict = [f"strict {each}" for each in _json_paths(self.path)]
        return self._sql(self.postgresql, strict, compiler)

    def _sql(
        self, template: str, paths: Sequence[str], compiler: SQLCompiler
    ) -> tuple[str, tuple[str, ...]]:
        column, _ = compiler.compile(self.source_expressions[0])
        sql = ", ".join([template.replace("COLUMN", column)] * len(paths))
        given = tuple(path for path in paths for _ in range(template.count("%s")))
        return (sql if len(paths) == 1 else f"COALESCE({sql})"), given


def _json_paths(path: Path) -> list[str]:
    """Return the JSON paths that it may mean; at most one of them is there.

    Their basic form is the same in both databases.
    """
    found, num_either = ["$"], 0
    for part in path:
        forms = [f".{json.dumps(part)}"] if isinstance(part, str) else [f"[{part}]"]
        if isinstance(part, KeyOrIndex):
            num_either += 1
            forms = [f"[{int(part)}]", *(forms if num_either <= MAX_EITHER else [])]
        found = [before + form for before in found for form in forms]
    return found


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
