"""The command `edit`: name, tags, notes and marks of an operation."""

from typing import TYPE_CHECKING, Annotated

import typer

from trainops.cli import looks
from trainops.cli.operations import PANEL, Id
from trainops.cli.session import Session, command
from trainops.client.problems import ExitCode, Problem
from trainops.client.references import operation_id

if TYPE_CHECKING:
    from trainops.client.responses import Operation

OPTIONS = (
    "--name, --tag, --untag, --project, --notes, --favourite, --archive, --acknowledge, --because"
)


def register(app: typer.Typer) -> None:
    command(app, "edit", panel=PANEL)(edit)


def edit(
    session: Session,
    reference: Id,
    name: Annotated[str | None, typer.Option(help="New name.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Add this tag (repeatable).")] = None,
    untag: Annotated[list[str] | None, typer.Option(help="Remove this tag.")] = None,
    project: Annotated[str | None, typer.Option(help="Project; '' for none.")] = None,
    notes: Annotated[
        str | None, typer.Option(help="Notes; they replace the existing ones.")
    ] = None,
    favourite: Annotated[
        bool | None, typer.Option("--favourite/--no-favourite", help="Mark as a favourite.")
    ] = None,
    archive: Annotated[
        bool | None, typer.Option("--archive/--no-archive", help="Omit it from lists.")
    ] = None,
    acknowledge: Annotated[
        bool | None,
        typer.Option(
            "--acknowledge/--no-acknowledge", help="It needs no attention until it is resumed."
        ),
    ] = None,
    because: Annotated[
        str | None, typer.Option(help="Note on the acknowledgement, such as the cause.")
    ] = None,
) -> None:
    """Rename, tag, annotate, archive or acknowledge an operation.

    Example: trainops edit 3f9b3c --tag night --notes 'With the larger batch.'
    """
    found = operation_id(session.api, reference)
    given: dict[str, object | None] = {
        "name": name,
        "project": project,
        "notes": notes,
        "is_favourite": favourite,
        "archived": archive,
        "acknowledged": acknowledge,
        "acknowledgement": because,
    }
    body = {field: value for field, value in given.items() if value is not None}
    if not body and not tag and not untag:
        raise Problem(f"got nothing to change; allowed: {OPTIONS}", ExitCode.USAGE)
    before: Operation = session.api.get(f"operations/{found}")
    if tag or untag:
        body["tags"] = sorted({*(before.get("tags") or []), *(tag or [])} - {*(untag or [])})
    body["revision"] = before["revision"]
    after: Operation = session.api.patch(f"operations/{found}", body)
    if session.out.is_data:
        session.out.data(after)
    else:
        session.out.text(f"Saved {looks.plain(after['name'])!r}.")
