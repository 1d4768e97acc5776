"""Following an operation: ask every second, show what changed, stop when it is over."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from trainops.cli import looks
from trainops.cli.api import Api
from trainops.cli.problems import ExitCode, Problem, Unreachable
from trainops.cli.session import Session
from trainops.paths import COMMAND

POLL_SECONDS = 1.0
PATIENCE_SECONDS = 60.0  # a server that is being restarted comes back within this
BAR_WIDTH = 32
LINE_SECONDS = 10.0  # without a terminal: at most one line of progress in so long

WAITING = frozenset({"PENDING", "RESUMING"})
Operation = dict[str, Any]


def follow(session: Session, operation_id: str) -> Operation:
    """Show the operation's progress on stderr until it is finished; return it as it ended.

    Ctrl-C stops only the following, says so, and exits with 130.
    """
    view: View = Bar(session) if session.out.stderr.is_terminal else Lines(session)
    operation: Operation = {}
    try:
        with view.shown():
            for operation in states(session.api, operation_id, lost=view.lost):
                view.update(operation)
    except KeyboardInterrupt:
        _say_how_to_go_on(session, operation_id)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    _say_how_it_ended(session, operation)
    return operation


def states(api: Api, operation_id: str, *, lost: Callable[[str], None]) -> Iterator[Operation]:
    """Yield the operation once a second, the last time when it is finished.

    Raises:
        Unreachable: the server has been away for a minute.
    """
    ask = partial(api.get, f"operations/{operation_id}")
    operation = ask()  # who is not there at the start is not waited for
    while True:
        yield operation
        if operation["status"] in looks.FINISHED:
            return
        time.sleep(POLL_SECONDS)
        operation = patiently(ask, lost=lost)


def patiently(
    ask: Callable[[], Operation],
    *,
    lost: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Operation:
    """Return the answer; while nobody answers, say so and ask again, for a minute."""
    give_up_at = clock() + PATIENCE_SECONDS
    while True:
        try:
            return ask()
        except Unreachable as problem:
            if clock() > give_up_at:
                raise
            lost(str(problem))
            sleep(POLL_SECONDS)


def watch_to_the_end(session: Session, operation_id: str) -> None:
    """Follow; then exit with 0 if it COMPLETED, else with 1: a script must not go on after that."""
    operation = follow(session, operation_id)
    if session.out.is_json:
        session.out.json(operation)
    is_done = operation["status"] == "COMPLETED"
    raise typer.Exit(ExitCode.OK if is_done else ExitCode.FAILED)


def say_commands(session: Session, operation_id: str) -> None:
    """Say what can be done with an operation that was just started, ready to paste."""
    session.out.note(f"  follow  {COMMAND} watch {operation_id}")
    session.out.note(f"  cancel  {COMMAND} cancel {operation_id}")
    session.out.note(f"  page    {session.server.page(operation_id)}")


class View(Protocol):
    def shown(self) -> Any: ...
    def update(self, operation: Operation) -> None: ...
    def lost(self, problem: str) -> None: ...


class Lines:
    """For logs and pipes: a line when the state changes, and now and then one of progress."""

    def __init__(self, session: Session, clock: Callable[[], float] = time.monotonic) -> None:
        self._note = session.out.note
        self._clock = clock
        self._state = ""
        self._line = ""
        self._next_at = 0.0

    @contextmanager
    def shown(self) -> Iterator[None]:
        yield

    def update(self, operation: Operation) -> None:
        line = _sentence(operation)
        changed = operation["status"] != self._state
        if line != self._line and (changed or self._clock() >= self._next_at):
            self._note(line)
            self._line, self._next_at = line, self._clock() + LINE_SECONDS
        self._state = operation["status"]

    def lost(self, problem: str) -> None:
        self._note(f"{problem} Trying again.")


class Bar:
    """For a terminal: a bar that moves, with the newest metrics below it."""

    def __init__(self, session: Session) -> None:
        self._live = Live(console=session.out.stderr, auto_refresh=True, refresh_per_second=8)
        self._spinner = Spinner("dots")

    @contextmanager
    def shown(self) -> Iterator[None]:
        with self._live:
            yield

    def update(self, operation: Operation) -> None:
        self._live.update(self._drawn(operation), refresh=True)

    def lost(self, problem: str) -> None:
        self._live.update(
            Text(f"{looks.plain(problem)} Trying again.", style="yellow"), refresh=True
        )

    def _drawn(self, operation: Operation) -> RenderableType:
        row = Table.grid(padding=(0, 1))
        is_over = operation["status"] in looks.FINISHED
        first, *more = _pieces(operation)
        if operation["status"] in WAITING:
            first += f" for {looks.duration(looks.age(operation.get('queued_at')))}"
        row.add_row(
            Text(" ") if is_over else self._spinner,
            looks.state(operation["status"]),
            ProgressBar(total=100, completed=operation.get("percent") or 0, width=BAR_WIDTH),
            Text(first, no_wrap=True, overflow="ellipsis"),
        )
        more.append(looks.metrics(operation.get("metrics"), at_most=6))
        below = " · ".join(filter(None, more))
        return Group(row, Text(f"  {below}", no_wrap=True, overflow="ellipsis")) if below else row


def _sentence(operation: Operation) -> str:
    metrics = looks.metrics(operation.get("metrics"))
    where = " · ".join(filter(None, _pieces(operation)))
    return "  ".join(filter(None, (operation["status"], where, metrics)))


def _pieces(operation: Operation) -> list[str]:
    """Return where it is, then how fast it goes and what was asked of it; or what it waits for."""
    state = operation["status"]
    if state in WAITING:
        return [_waiting(operation), _obstacle(operation)]
    progress = looks.progress(operation)
    pieces = ["" if progress == looks.DASH else progress]
    if state == "RUNNING":
        if (eta := operation.get("eta_seconds")) is not None:
            pieces.append(f"{looks.duration(eta)} left")
        if rate := operation.get("steps_per_second"):
            pieces.append(f"{looks.number(rate)} {looks.plain(operation.get('unit') or 'step')}s/s")
        if stop := operation.get("stop_requested"):
            by = looks.plain(operation.get("stop_requested_by") or "somebody")
            pieces.append(f"{stop} requested by {by}")
    return pieces


def _waiting(operation: Operation) -> str:
    if not_before := operation.get("not_before"):
        return f"restarts at {not_before}"
    return "waiting for a worker"


def _obstacle(operation: Operation) -> str:
    """Return why no worker takes it; nothing where one is about to."""
    wait = operation.get("waiting_for") or {}
    return "" if wait.get("code") in (None, "SOON", "PAUSED") else looks.plain(wait["message"])


def _say_how_to_go_on(session: Session, operation_id: str) -> None:
    session.out.note("\nStopped following; the operation goes on.")
    say_commands(session, operation_id)


def _say_how_it_ended(session: Session, operation: Operation) -> None:
    state, operation_id = operation["status"], operation["operation_id"]
    note = session.out.note
    if state == "COMPLETED":
        note(f"COMPLETED  {looks.metrics(operation.get('metrics'))}", style="green")
    elif state == "CANCELLED":
        note(f"CANCELLED at {looks.progress(operation)}.", style="yellow")
        note(f"  resume  {COMMAND} resume {operation_id} --follow")
    else:
        session.out.problem(failure(operation))


def failure(operation: Operation) -> Problem:
    """Return why an operation FAILED, and what to look at."""
    error = operation.get("error") or {}
    code = error.get("code") or operation.get("reason") or "FAILED"
    return Problem(
        f"the operation FAILED: {code}: {error.get('message') or 'no message'}",
        hints=(
            f"log     {COMMAND} logs {operation['id']}",
            f"resume  {COMMAND} resume {operation['id']} --follow",
            f"page    see `{COMMAND} show {operation['id']}`",
        ),
    )
