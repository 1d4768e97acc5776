"""The commands that submit an operation, and that print the file to submit it again."""

from pathlib import Path
from typing import Annotated

import typer

from trainops import operation_yaml
from trainops.cli import looks, submission
from trainops.cli.following import say_commands, watch_to_the_end
from trainops.cli.operations import PANEL, Follow, Id
from trainops.cli.previews import IsPreview
from trainops.cli.session import Session, command
from trainops.client.problems import Refused
from trainops.client.references import operation_id
from trainops.client.responses import Estimate, Operation


def register(app: typer.Typer) -> None:
    """Add these commands."""
    for name, function in (("run", run), ("config", config)):
        command(app, name, panel=PANEL)(function)


def run(
    session: Session,
    file: Annotated[
        Path, typer.Argument(metavar="FILE.yaml", help="File, or - for stdin.", show_default=False)
    ],
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Override a config field; repeatable."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Display name.")] = None,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", help="Tag to add to those of the file; repeatable.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="Kind; overrides the kind of the file.")] = None,
    queue: Annotated[
        str | None, typer.Option(metavar="LABEL", help="Required worker label.")
    ] = None,
    project: Annotated[str | None, typer.Option(help="Project.")] = None,
    is_preview: IsPreview = False,
    follow_it: Follow = False,
) -> None:
    """Submit the operation of a YAML file.

    Example: trainops run digits.yaml --set epochs=5 --follow
    """
    wanted = submission.read(file)
    for assignment in assignments or []:
        wanted.assign(assignment)
    given = {"name": name, "kind": kind, "queue": queue, "project": project}
    wanted.body |= {field: value for field, value in given.items() if value is not None}
    if tags:
        wanted.add_tags(tags)
    if is_preview:
        _preview(session, wanted)
        return
    operation = _submit(session, wanted)
    if not (session.out.is_data and follow_it):  # then its data follow when it is finished
        write_submitted(session, operation)
    session.out.note(f"Submitted {operation['name']!r}.")
    say_commands(session, operation["operation_id"])
    if follow_it:
        watch_to_the_end(session, operation["operation_id"])


def config(session: Session, reference: Id) -> None:
    """Print the config of an operation as a file for `run`; with -o json: with all defaults.

    Example: trainops config 3f9b3c > again.yaml
    """
    operation: Operation = session.api.get(f"operations/{operation_id(session.api, reference)}")
    if session.out.is_data:
        session.out.data(operation["config"])
        return
    described = {name: operation.get(name) for name in ("tags", "priority", "queue", "project")}
    text = operation_yaml.written(
        operation["kind"], operation["name"], operation["config_given"], **described
    )
    session.out.text(text, end="")


def _preview(session: Session, wanted: submission.Submission) -> None:
    """Write where the operation could run, and its time and size by earlier ones."""
    try:
        found: Estimate = session.api.post("operations/estimate", wanted.body)
    except Refused as refused:
        raise wanted.explain(refused) from refused
    if session.out.is_data:
        session.out.data(found)
        return
    session.out.text(looks.plain(found["status"]["message"]))
    session.out.text(f"Workers that can run it: {', '.join(found['worker_ids']) or 'none'}")
    if number := found["num_earlier"]:
        session.out.text(
            f"About {looks.duration(found['seconds'])}, checkpoints of "
            f"{looks.size(found['checkpoint_bytes'])} (median of earlier operations: {number})"
        )
    for note in found.get("notes", []):
        session.out.text(looks.plain(note))


def _submit(session: Session, wanted: submission.Submission) -> Operation:
    """Submit once, also if the response to the first try is lost."""
    try:
        operation: Operation = session.api.submit("operations", wanted.body)
    except Refused as refused:
        raise wanted.explain(refused) from refused
    return operation


def write_submitted(session: Session, operation: Operation) -> None:
    """Write the id, for use in scripts, or the data."""
    if session.out.is_data:
        session.out.data(operation)
    else:
        session.out.text(operation["operation_id"])
