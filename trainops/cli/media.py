"""The command `media`: what a recipe logged besides numbers."""

from pathlib import Path
from typing import Annotated

import typer

from trainops.cli import looks
from trainops.cli.operations import PANEL, Id
from trainops.cli.session import Session, command
from trainops.client import media as logged
from trainops.client.problems import Problem
from trainops.client.references import operation_id


def register(app: typer.Typer) -> None:
    """Add the command `media`."""
    command(app, "media", panel=PANEL)(media)


def media(
    session: Session,
    reference: Id,
    name: Annotated[str | None, typer.Option(help="Only this name; by default all.")] = None,
    directory: Annotated[
        Path | None,
        typer.Option("--directory", "-d", help="Directory to write to; by default none is."),
    ] = None,
) -> None:
    """List the images, tables and other media of an operation, or write them to files.

    Example: trainops media 3f9b3c --name confusion -d media
    """
    found = operation_id(session.api, reference)
    if directory is not None:
        try:
            paths = logged.save(session.api, found, directory, name)
        except OSError as error:
            raise Problem(f"{directory}: {error.strerror}") from error
        if session.out.is_data:
            session.out.data([str(path) for path in paths])
            return
        for path in paths:
            session.out.text(looks.plain(path))
        return
    rows = logged.listed(session.api, found, name)
    if session.out.is_data:
        session.out.data(rows)
    elif rows:
        session.out.table(
            ["name", "type", "steps", "latest step"],
            (
                [looks.cell(row["name"]), step["type"], str(len(row["steps"])), str(step["step"])]
                for row in rows
                for step in row["steps"][-1:]
            ),
        )
