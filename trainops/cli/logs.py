"""The command that prints what an operation's processes wrote."""

import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

import typer

from trainops.cli import looks
from trainops.cli.following import POLL_SECONDS, patiently, say_commands
from trainops.cli.operations import PANEL, Id
from trainops.cli.problems import ExitCode
from trainops.cli.references import operation_id
from trainops.cli.session import Session, command

Chunk = dict[str, Any]


def register(app: typer.Typer) -> None:
    """Add the command `logs`."""
    command(app, "logs", panel=PANEL)(logs)


def logs(
    session: Session,
    reference: Id,
    follow_it: Annotated[
        bool, typer.Option("--follow", "-f", help="Until it is finished.")
    ] = False,
    attempt: Annotated[int | None, typer.Option(min=1, help="Only this one's.")] = None,
) -> None:
    """Print what an operation's processes wrote."""
    found = operation_id(session.api, reference)
    try:
        if session.out.is_json:
            session.out.json(list(_chunks(session, found, attempt, follow_it)))
            return
        for chunk in _chunks(session, found, attempt, follow_it):
            _print(chunk["text"])
    except KeyboardInterrupt:
        session.out.note("\nStopped following; the operation goes on.")
        say_commands(session, found)
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _chunks(session: Session, found: str, attempt: int | None, follow_it: bool) -> Iterator[Chunk]:
    """Yield the pieces of the log, oldest first; all that were written before the end."""
    ask = partial(session.api.get, f"operations/{found}/logs", attempt=attempt)
    is_over = not follow_it
    portion = ask(after=0)
    while True:
        yield from portion["chunks"]
        if not portion["has_more"]:
            if is_over:
                return
            time.sleep(POLL_SECONDS)
            # The state is read before the rest of the log: what it wrote last is not missed.
            is_over = _is_finished(session, found)
        following_on = partial(ask, after=portion["last_id"])
        portion = patiently(following_on, lost=session.out.note)


def _is_finished(session: Session, found: str) -> bool:
    ask = partial(session.api.get, f"operations/{found}")
    return patiently(ask, lost=session.out.note)["status"] in looks.FINISHED


def _print(text: str) -> None:
    """Write to stdout: on a terminal without what would move its cursor, else byte for byte."""
    sys.stdout.write(looks.plain(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()
