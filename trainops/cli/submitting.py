"""The command that submits an operation."""

import time
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import typer

from trainops.cli import submission
from trainops.cli.following import say_commands, watch_to_the_end
from trainops.cli.operations import PANEL, Follow
from trainops.cli.problems import Refused, Unreachable
from trainops.cli.session import Session, command


def register(app: typer.Typer) -> None:
    """Add the command `run`."""
    command(app, "run", panel=PANEL)(run)


def run(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", show_default=False)],
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a field of config; repeatable."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="For people.")] = None,
    tags: Annotated[list[str] | None, typer.Option("--tag", help="Added to the file's.")] = None,
    kind: Annotated[str | None, typer.Option(help="Instead of the file's.")] = None,
    queue: Annotated[
        str | None, typer.Option(metavar="LABEL", help="Only on workers that have this label.")
    ] = None,
    follow_it: Follow = False,
) -> None:
    """Submit the operation that a YAML file describes."""
    wanted = submission.read(file)
    for assignment in assignments or []:
        wanted.assign(assignment)
    given = {"name": name, "kind": kind, "queue": queue}
    wanted.body |= {field: value for field, value in given.items() if value is not None}
    if tags:
        wanted.body["tags"] = [*(wanted.body.get("tags") or []), *tags]
    operation = _submit(session, wanted)
    if not (session.out.is_json and follow_it):  # then its data follow when it is finished
        write_submitted(session, operation)
    session.out.note(f"Submitted {operation['name']!r}.")
    say_commands(session, operation["operation_id"])
    if follow_it:
        watch_to_the_end(session, operation["operation_id"])


def _submit(session: Session, wanted: submission.Submission) -> dict[str, Any]:
    """Submit once, also where the answer to the first try got lost on its way."""
    key = {"Idempotency-Key": str(uuid4())}
    try:
        operation = session.api.post("operations", wanted.body, headers=key)
    except Refused as refused:
        raise wanted.explain(refused) from refused
    except Unreachable:
        time.sleep(1)
        operation = session.api.post("operations", wanted.body, headers=key)
    return dict(operation)


def write_submitted(session: Session, operation: dict[str, Any]) -> None:
    """Write the id, which is what a script goes on with, or the data."""
    if session.out.is_json:
        session.out.json(operation)
    else:
        session.out.text(operation["operation_id"])
