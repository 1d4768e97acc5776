"""A consistent copy of the database while it is in use, and its way back.

SQLite copies itself by its backup interface, PostgreSQL by pg_dump and pg_restore.
"""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
from django.db import connection
from psycopg.conninfo import make_conninfo

from apps.backups.contents import DRAFT
from apps.backups.errors import DatabaseProblem
from trainops.launch import embedded
from trainops.launch.refusal import CannotStart
from trainops.runtime.checkpoint.durable import sync_directory

Rows: TypeAlias = list[tuple[Any, ...]]
# A copy may take hours, and its transaction has no statements while pg_dump runs.
UNLIMITED = (
    " -c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0"
)  # fmt: skip


def engine() -> str:
    return str(connection.vendor)


def snapshot(target: Path, queries: Iterable[str]) -> list[Rows]:
    """Write a copy to `target`; return what each query finds in that copy. Raises DatabaseProblem.

    The queries have no parameters.
    """
    return (_of_sqlite if engine() == "sqlite" else _of_postgres)(target, queries)


def require_empty() -> None:
    """Raise DatabaseProblem if there is a table in it."""
    if tables := connection.introspection.table_names():
        raise DatabaseProblem(
            f"The database is not empty: it has {len(tables)} tables, such as {tables[0]}. "
            "Restore into a new data directory or an empty database."
        )


def restore(source: Path, made_by: str) -> None:
    """Fill the empty database from a copy that this engine wrote. Raises DatabaseProblem."""
    if made_by != engine():
        remedy = {
            "sqlite": "Unset TRAINOPS_DATABASE_URL.",
            "postgresql": "Set TRAINOPS_DATABASE_URL to an empty database of PostgreSQL.",
        }
        raise DatabaseProblem(
            f"The backup is of {made_by}, this installation uses {engine()}. {remedy[made_by]}"
        )
    if made_by == "sqlite":
        _restore_sqlite(source, Path(connection.settings_dict["NAME"]))
        return
    _run("pg_restore", "--exit-on-error", "--single-transaction", "--no-owner", "--no-privileges",
         str(source))  # fmt: skip


def _restore_sqlite(source: Path, path: Path) -> None:
    """Put a copy of the database in the place of the empty one, whole or not at all."""
    connection.close()
    draft = path.with_name(f"{DRAFT}{path.name}")
    try:
        shutil.copyfile(source, draft)
        draft.chmod(0o600)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        for suffix in ("-wal", "-shm"):  # of the empty one, if a process was killed
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)
    sync_directory(path.parent)


def _of_sqlite(target: Path, queries: Iterable[str]) -> list[Rows]:
    connection.ensure_connection()
    with closing(sqlite3.connect(target)) as copy:
        connection.connection.backup(copy)
        if (found := copy.execute("PRAGMA integrity_check").fetchone()[0]) != "ok":
            raise DatabaseProblem(f"The database is damaged: {found}")
        return [copy.execute(query).fetchall() for query in queries]


def _of_postgres(target: Path, queries: Iterable[str]) -> list[Rows]:
    """Have pg_dump and our queries see the same moment."""
    with _exported() as (cursor, name):
        _run("pg_dump", "--format", "custom", "--no-owner", "--no-privileges", "--snapshot", name,
             "--file", str(target))  # fmt: skip
        return [cursor.execute(query).fetchall() for query in queries]


@contextmanager
def _exported() -> Iterator[tuple["psycopg.Cursor[Any]", str]]:
    """Yield a cursor, and the name under which others see what it sees."""
    try:
        with psycopg.connect(make_conninfo(**_parameters())) as own, own.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            (name,) = cursor.execute("SELECT pg_export_snapshot()").fetchall()[0]
            yield cursor, str(name)
    except psycopg.Error as error:
        raise DatabaseProblem(f"The database cannot be copied: {error}") from error


def _parameters() -> dict[str, Any]:
    """Return what libpq needs for the same connection as Django's, also sslmode and the like."""
    known = {each.keyword.decode() for each in psycopg.pq.Conninfo.get_defaults()}
    known.discard("client_encoding")  # pg_dump takes that of the database
    found = connection.get_connection_params()
    found["options"] = found.get("options", "") + UNLIMITED
    return {name: value for name, value in found.items() if name in known}


def _run(program: str, *arguments: str) -> None:
    parameters = _parameters()
    password = parameters.pop("password", None)  # other users see arguments
    variables = {} if password is None else {"PGPASSWORD": str(password)}
    try:
        path = embedded.postgres_binaries() / program
    except CannotStart as error:
        raise DatabaseProblem(f"{program} was not found. {error}") from error
    target = ["--dbname", make_conninfo(**parameters)]
    command = [str(path if path.exists() else shutil.which(program) or path), *target, *arguments]
    try:
        done = subprocess.run(  # noqa: S603 - our own arguments
            command, env=os.environ | variables, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise DatabaseProblem(f"{program} cannot run: {error}") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise DatabaseProblem(f"{program} failed: {lines[0]}")
