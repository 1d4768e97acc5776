"""The command that prints what an operation's processes wrote."""

import sys
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from trainops.cli import looks, times
from trainops.cli.following import POLL_SECONDS, patiently, say_commands
from trainops.cli.operations import PANEL, Id
from trainops.cli.session import Session, command
from trainops.client.problems import ExitCode
from trainops.client.references import operation_id
from trainops.client.responses import LogChunk, LogLines, LogPage, Operation

MAX_HITS = 10_000


class LogLevel(StrEnum):
    """The levels of lines, the lowest first."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


def register(app: typer.Typer) -> None:
    """Add the command `logs`."""
    command(app, "logs", panel=PANEL)(logs)


def logs(
    session: Session,
    reference: Id,
    follow_it: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the log until the operation ends.")
    ] = False,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Only the output of this attempt.")
    ] = None,
    grep: Annotated[str, typer.Option(help="Only lines with this text, in any case.")] = "",
    level: Annotated[
        LogLevel | None,
        typer.Option(help="Only lines of at least this level.", case_sensitive=False),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Only output of the last, for example, 90s, 30m or 2h; or an ISO time."),
    ] = None,
    around: Annotated[
        int, typer.Option("--around", "-C", min=0, max=20, help="Lines around each match.")
    ] = 0,
) -> None:
    """Print the log of an operation, or the lines that match.

    Example: trainops logs 3f9b3c --level warning --since 30m
    """
    found = operation_id(session.api, reference)
    if grep or level or since:
        if follow_it:
            raise typer.BadParameter("got --follow with a search; allowed: one of them")
        _search(session, found, grep, level, since, around, attempt)
        return
    try:
        if session.out.is_data:
            session.out.data(list(_chunks(session, found, attempt, follow_it)))
            return
        for chunk in _chunks(session, found, attempt, follow_it):
            _print(chunk["text"])
    except KeyboardInterrupt:
        session.out.note("\nStopped following; the operation continues.")
        say_commands(session, found)
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _search(
    session: Session,
    found: str,
    grep: str,
    level: LogLevel | None,
    since: str | None,
    around: int,
    attempt: int | None,
) -> None:
    """Print the lines that match, and on stderr how many there are if some are left out."""
    lines: LogLines = session.api.get(
        f"operations/{found}/logs/lines",
        search=grep or None,
        level=level.value if level else None,
        since=None if since is None else times.since(since),
        around=around,
        limit=MAX_HITS,
        attempt=attempt,
    )
    if session.out.is_data:
        session.out.data(lines["lines"])
        return
    group = 0
    for line in lines["lines"]:
        if around and line["group"] != group:
            _print("--\n")
        group = line["group"]
        _print(f"{line['text']}\n")
    if lines["has_before"]:
        session.out.note(f"{lines['count']:,} lines match; the last {MAX_HITS:,} are shown.")


def _chunks(
    session: Session, found: str, attempt: int | None, follow_it: bool
) -> Iterator[LogChunk]:
    """Yield the pieces of the log, oldest first; all that were written before the end."""
    ask = partial(session.api.get, f"operations/{found}/logs", attempt=attempt)
    is_over = not follow_it
    portion: LogPage = ask(after=0)
    while True:
        yield from portion["chunks"]
        if not portion["has_more"]:
            if is_over:
                return
            time.sleep(POLL_SECONDS)
            # The state is read before the rest of the log: what it wrote last is not missed.
            is_over = _is_finished(session, found)
        following_on: Callable[[], LogPage] = partial(ask, after=portion["last_id"])
        portion = patiently(following_on, lost=session.out.note)


def _is_finished(session: Session, found: str) -> bool:
    ask: Callable[[], Operation] = partial(session.api.get, f"operations/{found}")
    return patiently(ask, lost=session.out.note)["status"] in looks.FINISHED


def _print(text: str) -> None:
    """Write to stdout: on a terminal without what would move its cursor, else byte for byte."""
    sys.stdout.write(looks.plain(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()
