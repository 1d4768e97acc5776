"""Resumes and forks that are not exact: what was changed is named, and a person is asked."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, TypeVar

import typer

from trainops.cli import looks
from trainops.cli.session import Session
from trainops.client.problems import Problem, Refused
from trainops.client.responses import Message
from trainops.paths import COMMAND

OPTION = "--accept-inexact"
CODE_CHANGED = "CODE_CHANGED"
Answer = TypeVar("Answer")
AcceptInexact = Annotated[
    bool,
    typer.Option(
        OPTION,
        help="Resume even if that is not exact: files of the recipe were changed, or the config "
        "requires it.",
    ),
]


def post(
    session: Session,
    path: str,
    body: Mapping[str, object],
    *,
    command: str,
    accept_inexact: bool,
) -> Message:
    """Request a resume; if files of its recipe were changed, ask whether it is wanted anyway.

    command: what was entered, such as "resume ID". Raises Problem without a terminal.
    """
    send: Callable[[Mapping[str, object]], Message] = partial(session.api.post, path)
    return ask(session, send, body, f"{COMMAND} {command}", "Resume", accept_inexact=accept_inexact)


def ask(
    session: Session,
    send: Callable[[Mapping[str, object]], Answer],
    body: Mapping[str, object],
    command: str,
    verb: str,
    *,
    accept_inexact: bool,
) -> Answer:
    """Send a request; if files of the recipe were changed, ask whether it is wanted anyway.

    Raises Problem without a terminal, which names the whole command.
    """
    accepting = {**body, "accept_inexact": True}
    try:
        return send(accepting if accept_inexact else body)
    except Refused as refused:
        if refused.code != CODE_CHANGED:
            raise
        if not session.out.can_ask:
            hint = f"{verb} anyway: {command} {OPTION}"
            raise Problem(str(refused), refused.exit_code, hints=(hint,)) from refused
        if not typer.confirm(f"{looks.plain(str(refused))} {verb} anyway?", err=True):
            raise Problem("Nothing was changed.", refused.exit_code) from refused
        return send(accepting)
