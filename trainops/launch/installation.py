"""The installation in a data directory, for commands that work without its server.

Standard library only until `open_database`, which needs the environment.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from trainops import paths
from trainops.launch import embedded
from trainops.launch.refusal import CannotStart


def require() -> None:
    """Raise CannotStart if there is no data directory."""
    directory = paths.data_dir()
    if not directory.is_dir():
        raise CannotStart(f"There is no installation in {directory} (TRAINOPS_DATA_DIR).")


def name_database(directory: Path) -> None:
    """Name the database of `up --postgres`, which runs while `up` does, unless one is named."""
    if not (directory / "trainops.sqlite3").exists() and (directory / "postgres").is_dir():
        url = embedded.postgres_url(directory.resolve() / "postgres")
        os.environ.setdefault("TRAINOPS_DATABASE_URL", url)


@contextmanager
def refusing(problem: type[Exception]) -> Iterator[None]:
    """Turn this error, and those of files and of the database, into a message.

    Raises CannotStart.
    """
    database: type[Exception] = import_module("django.db").DatabaseError
    try:
        yield
    except (problem, OSError, database) as error:
        raise CannotStart(str(error)) from error


def open_database() -> None:
    """Set Django up for the database of this installation.

    Raises CannotStart where a setting is refused.
    """
    name_database(paths.data_dir())
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "trainops.settings")
    refused: type[Exception] = import_module("pydantic").ValidationError
    try:
        import_module("django").setup()
    except refused as error:
        problems = error.errors()  # type: ignore[attr-defined]
        messages = (each["msg"].removeprefix("Value error, ") for each in problems)
        raise CannotStart("; ".join(messages)) from error
