"""Commands that submit a new operation from a checkpoint of another: fork, extend, warm-start."""

import shlex
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from trainops.cli import previews, resuming
from trainops.cli.following import say_commands, watch_to_the_end
from trainops.cli.operations import PANEL, Follow, Id
from trainops.cli.previews import IsPreview
from trainops.cli.session import Session, command
from trainops.cli.submission import Submission
from trainops.client.problems import Refused
from trainops.client.references import operation_id
from trainops.paths import COMMAND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainops.client.responses import Operation

Checkpoint = Annotated[
    str | None,
    typer.Option(
        help="Checkpoint id, latest, best or best:METRIC; by default the latest healthy one."
    ),
]
Name = Annotated[str, typer.Option(help="Display name of the new operation.")]
Project = Annotated[
    str | None,
    typer.Option(help='Project; by default that of the parent operation. "" is none.'),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Override a config field; repeatable."),
]

AcceptInexact = Annotated[
    bool,
    typer.Option(
        resuming.OPTION,
        help="Submit even if that is not exact, because files of the recipe were changed.",
    ),
]

UNSEEN = ("name", "project")  # make no difference in a preview
OPTIONS = {"checkpoint_id": "--checkpoint", "name": "--name", "project": "--project", "to": "--to"}


def register(app: typer.Typer) -> None:
    """Add these commands, in the order of the help."""
    for name, function in (("fork", fork), ("extend", extend), ("warm-start", warm_start)):
        command(app, name, panel=PANEL)(function)


def fork(
    session: Session,
    reference: Id,
    checkpoint: Checkpoint = None,
    name: Name = "",
    project: Project = None,
    assignments: Assignments = None,
    accept_inexact: AcceptInexact = False,
    is_preview: IsPreview = False,
    follow_it: Follow = False,
) -> None:
    """Submit a new operation that starts from a checkpoint of another.

    If files of its recipe were changed on the server, the command names them and asks first.

    Example: trainops fork 3f9b3c --checkpoint best --set learning_rate=0.001
    """
    wanted = _wanted("fork", checkpoint, name, project, assignments)
    _request(
        session, "fork", reference, wanted,
        is_preview=is_preview, follow_it=follow_it, accept_inexact=accept_inexact,
    )  # fmt: skip


def extend(
    session: Session,
    reference: Id,
    to: Annotated[
        int, typer.Option(help="Total epochs, rounds or steps; more than before.", min=1)
    ],
    checkpoint: Checkpoint = None,
    name: Name = "",
    project: Project = None,
    accept_inexact: AcceptInexact = False,
    is_preview: IsPreview = False,
    follow_it: Follow = False,
) -> None:
    """Submit a fork of an operation that runs longer.

    If files of its recipe were changed on the server, the command names them and asks first.

    Example: trainops extend 3f9b3c --to 40 --follow
    """
    wanted = _wanted("extend", checkpoint, name, project, None)
    wanted.body["to"] = to
    _request(
        session, "extend", reference, wanted,
        is_preview=is_preview, follow_it=follow_it, accept_inexact=accept_inexact,
    )  # fmt: skip


def warm_start(
    session: Session,
    reference: Id,
    checkpoint: Checkpoint = None,
    name: Name = "",
    project: Project = None,
    assignments: Assignments = None,
    is_preview: IsPreview = False,
    follow_it: Follow = False,
) -> None:
    """Submit a new operation that starts at step 0 with the weights of another.

    Example: trainops warm-start 3f9b3c --set epochs=5
    """
    wanted = _wanted("warm-start", checkpoint, name, project, assignments)
    _request(session, "warm-start", reference, wanted, is_preview=is_preview, follow_it=follow_it)


def _wanted(
    verb: str,
    checkpoint: str | None,
    name: str,
    project: str | None,
    assignments: list[str] | None,
) -> Submission:
    wanted = Submission({"checkpoint_id": checkpoint or "", "name": name}, verb)
    if project is not None:
        wanted.body["project"] = project
    for typed in assignments or ():
        wanted.assign(typed)
    return wanted


def _request(
    session: Session,
    verb: str,
    reference: str,
    wanted: Submission,
    *,
    is_preview: bool,
    follow_it: bool,
    accept_inexact: bool = False,
) -> None:
    found = operation_id(session.api, reference)
    try:
        if is_preview:
            body = {name: value for name, value in wanted.body.items() if name not in UNSEEN}
            previews.show(session, found, verb, body)
            return
        submit: Callable[[Mapping[str, object]], Operation] = partial(
            session.api.submit, f"operations/{found}/{verb}"
        )
        command = _command(verb, found, wanted, follow_it=follow_it)
        made = resuming.ask(
            session, submit, wanted.body, command, "Submit", accept_inexact=accept_inexact
        )
    except Refused as refused:
        raise wanted.explain(refused) from refused
    if session.out.is_data and not follow_it:
        session.out.data(made)
    elif not session.out.is_data:
        session.out.text(f"{made['id']}, from {found} at {made['unit']} {made['step']}")
        say_commands(session, made["operation_id"])
    if follow_it:
        watch_to_the_end(session, made["operation_id"])


def _command(verb: str, found: str, wanted: Submission, *, follow_it: bool) -> str:
    """Return the command that asks for the same."""
    options = {name: value for name, value in wanted.body.items() if name in OPTIONS}
    given = [
        (OPTIONS[name], str(value)) for name, value in options.items() if value or name == "project"
    ]
    given += [("--set", typed) for typed in wanted.was_set.values()]
    words = [COMMAND, verb, found, *(word for each in given for word in each)]
    return shlex.join([*words, *(["--follow"] if follow_it else [])])
