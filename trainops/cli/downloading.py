"""The command that downloads the files of an operation."""

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from trainops.cli import looks
from trainops.cli.operations import PANEL, Id
from trainops.cli.session import Session, command
from trainops.client.problems import ExitCode, Problem
from trainops.client.references import operation_id


def register(app: typer.Typer) -> None:
    """Add the command `download`."""
    command(app, "download", panel=PANEL)(download)


def download(
    session: Session,
    reference: Id,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE…", help="Only these files; by default all."),
    ] = None,
    directory: Annotated[
        Path, typer.Option("--directory", "-d", help="Directory to write to.")
    ] = Path(),
    checkpoint: Annotated[
        str,
        typer.Option(
            help="Checkpoint id, latest or best; by default the final one, else the latest."
        ),
    ] = "",
) -> None:
    """Download all files of an operation, and compare each with its digest.

    Example: trainops download 3f9b3c --checkpoint best -d model
    """
    found = operation_id(session.api, reference)
    files = import_module("trainops.client.files")  # its digests take time to import
    try:
        paths = files.download(
            session.api, found, directory, checkpoint=checkpoint, names=names or ()
        )
    except OSError as error:
        raise Problem(f"{directory}: {error.strerror}") from error
    if not paths:
        raise Problem(f"{found} has no files yet.", ExitCode.NOT_FOUND)
    rows = [
        {"name": path.name, "path": str(path), "size_bytes": path.stat().st_size} for path in paths
    ]
    if session.out.is_data:
        session.out.data(rows)
        return
    for path in paths:
        session.out.text(looks.plain(path))
    size = looks.size(sum(path.stat().st_size for path in paths))
    session.out.note(f"{len(paths)} files, {size}.")
