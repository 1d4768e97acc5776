"""What JSON columns hold at a path, on both databases."""

import json
from typing import Any, TypeAlias

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import CharField, F, FloatField, Func
from django.db.models.sql.compiler import SQLCompiler

Path: TypeAlias = tuple[str | int, ...]  # keys of objects, and indexes of lists


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
