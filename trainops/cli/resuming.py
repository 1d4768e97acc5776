"""Resumes that are not exact: what was changed is named, and a person is asked."""

from collections.abc import Mapping
from typing import Annotated

import typer

from trainops.cli import looks
from trainops.cli.session import Session
from trainops.client.problems import Problem, Refused
from trainops.client.responses import Message
from trainops.paths import COMMAND

OPTION = "--accept-inexact"
CODE_CHANGED = "CODE_CHANGED"
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
    accepting = {**body, "accept_inexact": True}
    try:
        first: Message = session.api.post(path, accepting if accept_inexact else body)
    except Refused as refused:
        if refused.code != CODE_CHANGED:
            raise
        if not session.out.can_ask:
            hint = f"Resume anyway: {COMMAND} {command} {OPTION}"
            raise Problem(str(refused), refused.exit_code, hints=(hint,)) from refused
        if not typer.confirm(f"{looks.plain(str(refused))} Resume anyway?", err=True):
            raise Problem("Nothing was changed.", refused.exit_code) from refused
        second: Message = session.api.post(path, accepting)
        return second
    return first
