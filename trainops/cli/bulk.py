"""The command `bulk`: one action on all operations that a query matches."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from trainops.cli import looks, resuming
from trainops.cli.operations import PANEL, confirm
from trainops.cli.session import Session, command
from trainops.client.problems import ExitCode, Problem

if TYPE_CHECKING:
    from trainops.client.responses import BulkOutcome, BulkOutcomes


class BulkAction(StrEnum):
    CANCEL = "cancel"
    KILL = "kill"
    RESUME = "resume"
    DELETE = "delete"
    ARCHIVE = "archive"
    ACKNOWLEDGE = "acknowledge"
    FAVOURITE = "favourite"
    EDIT = "edit"


def register(app: typer.Typer) -> None:
    """Add the command `bulk`."""
    command(app, "bulk", panel=PANEL)(bulk)


def bulk(
    session: Session,
    action: Annotated[BulkAction, typer.Argument(help="Action on each operation.")],
    query: Annotated[
        list[str],
        typer.Argument(
            metavar="QUERY…",
            help="Query in quotes, such as 'state:failed tag:night' (docs/lists.md).",
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list the outcomes; change nothing.")
    ] = False,
    because: Annotated[
        str, typer.Option(help="Note on what is acknowledged (acknowledge only).")
    ] = "",
    tag: Annotated[
        list[str], typer.Option(help="Tag to add; may be repeated (edit only).", show_default=False)
    ] = [],  # noqa: B006 - typer copies it
    untag: Annotated[
        list[str],
        typer.Option(help="Tag to remove; may be repeated (edit only).", show_default=False),
    ] = [],  # noqa: B006
    project: Annotated[
        str | None,
        typer.Option(help="New project; '' removes it (edit only).", show_default=False),
    ] = None,
    accept_inexact: resuming.AcceptInexact = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
) -> None:
    """Do one action to all operations that match a query, at most 500.

    Example: trainops bulk resume 'state:failed tag:night' --dry-run
    """
    options = {"note": because, "accept_inexact": accept_inexact, "tags": tag, "untags": untag}
    given = {name: value for name, value in options.items() if value}
    given |= {} if project is None else {"project": project}
    body = {"action": action.value, "q": " ".join(query), "dry_run": True, **given}
    preview: BulkOutcomes = session.api.post("operations/bulk", body)
    if dry_run:
        _say(session, preview)
        return
    ids = [each["operation_id"] for each in _of(preview, "allowed")]
    if not ids:
        if not session.out.is_data:
            _say(session, preview)
        raise Problem(f"No operation that matches can be changed by {action}.", ExitCode.CONFLICT)
    confirm(session, _question(action, len(ids), preview), yes)
    chosen = {"action": action.value, "ids": ids, **given}
    answer: BulkOutcomes = session.api.post("operations/bulk", chosen)
    _say(session, answer)
    if refused := answer["num_refused"]:
        is_inexact = any(each["code"] == resuming.CODE_CHANGED for each in answer["outcomes"])
        hints = (f"Resume them anyway: {resuming.OPTION}",) if is_inexact else ()
        text = f"{refused} of {len(ids)} operations were refused."
        raise Problem(text, ExitCode.CONFLICT, hints=hints)


def _of(outcomes: "BulkOutcomes", outcome: str) -> "list[BulkOutcome]":
    return [each for each in outcomes["outcomes"] if each["outcome"] == outcome]


def _question(action: BulkAction, num_operations: int, preview: "BulkOutcomes") -> str:
    first = f"{action.capitalize()} {num_operations} of {preview['num_matching']} operations"
    return f"{first} that match?"


def _say(session: Session, answer: "BulkOutcomes") -> None:
    if session.out.is_data:
        session.out.data(answer)
        return
    session.out.table(
        ["ID", "NAME", "OUTCOME", "WHY"],
        (
            [
                looks.cell(each["operation_id"]),
                looks.cell(each["name"]),
                looks.cell(each["outcome"]),
                looks.words(each["message"]),
            ]
            for each in answer["outcomes"]
        ),
        elastic="WHY",
    )
    listed = len(answer["outcomes"])
    if answer["num_matching"] > listed:
        session.out.note(f"The latest {listed} of {answer['num_matching']} that match.")
