"""Following an operation: ask every second, show what changed, stop when it is over."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Protocol, TypeVar

import typer

from trainops.cli import looks
from trainops.cli.session import Session
from trainops.client.api import Api
from trainops.client.problems import ExitCode, Problem, Refused, Unreachable
from trainops.client.responses import Operation
from trainops.paths import COMMAND

POLL_SECONDS = 1.0
PATIENCE_SECONDS = 60.0  # time limit for a server to return after a restart
AWAY = frozenset({"SERVICE_UNAVAILABLE", "SHUTTING_DOWN", "TOO_MANY_REQUESTS"})  # for a moment
LINE_SECONDS = 10.0  # between lines of progress, without a terminal

WAITING = frozenset({"PENDING", "RESUMING"})
Response = TypeVar("Response")


def follow(session: Session, operation_id: str) -> Operation:
    """Show the operation's progress on stderr until it is finished; return it as it ended.

    Ctrl-C stops only the following, says so, and exits with 130.
    """
    view: View = _bar(session) if session.out.is_interactive else LineOutput(session)
    try:
        with view.shown():
            operation = _update(view, states(session.api, operation_id, lost=view.lost))
    except KeyboardInterrupt:
        _say_how_to_go_on(session, operation_id)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    _say_how_it_ended(session, operation)
    return operation


def _bar(session: Session) -> "View":
    from trainops.cli.bar import Bar  # noqa: PLC0415 - its library takes 0.1 s to import

    return Bar(session)


def _update(view: "View", operations: Iterator[Operation]) -> Operation:
    """Show each state; return the last."""
    operation = next(operations)
    view.update(operation)
    for operation in operations:
        view.update(operation)
    return operation


def states(
    api: Api, operation_id: str, *, lost: Callable[[str], None], until: float = math.inf
) -> Iterator[Operation]:
    """Yield the operation once a second, the last time when it is finished.

    Raises:
        Unreachable: the server has been away for a minute, or until then on the monotonic clock.
    """
    ask: Callable[[], Operation] = partial(api.until(until).get, f"operations/{operation_id}")
    operation = ask()  # who is not there at the start is not waited for
    while True:
        yield operation
        if operation["status"] in looks.FINISHED:
            return
        time.sleep(min(POLL_SECONDS, max(0.0, until - time.monotonic())))
        operation = patiently(ask, lost=lost, until=until)


def patiently(
    ask: Callable[[], Response],
    *,
    lost: Callable[[str], None],
    until: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Response:
    """Return the response; without one, say so and retry, for a minute or until then.

    So where the server answers that it, or its database, is away for a moment.
    """
    give_up_at = min(until, clock() + PATIENCE_SECONDS)
    while True:
        try:
            return ask()
        except (Unreachable, Refused) as problem:
            is_away = isinstance(problem, Unreachable) or problem.code in AWAY
            if not is_away or clock() > give_up_at:
                raise
            lost(str(problem))
            sleep(POLL_SECONDS)


def watch_to_the_end(session: Session, operation_id: str) -> None:
    """Follow; then exit with 0 if it COMPLETED, else with 1: a script must not go on after that."""
    operation = follow(session, operation_id)
    if session.out.is_data:
        session.out.data(operation)
    is_done = operation["status"] == "COMPLETED"
    raise typer.Exit(ExitCode.OK if is_done else ExitCode.FAILED)


def say_commands(session: Session, operation_id: str) -> None:
    """Say what can be done with an operation that was just started, ready to paste."""
    session.out.note(f"  follow  {COMMAND} watch {operation_id}")
    session.out.note(f"  cancel  {COMMAND} cancel {operation_id}")
    session.out.note(f"  page    {session.server.page(operation_id)}")


class View(Protocol):
    def shown(self) -> AbstractContextManager[None]: ...
    def update(self, operation: Operation) -> None: ...
    def lost(self, problem: str) -> None: ...


class LineOutput:
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
        if operation["status"] in looks.FINISHED:
            return  # how it ended is said after that
        line = _sentence(operation)
        changed = operation["status"] != self._state
        if line != self._line and (changed or self._clock() >= self._next_at):
            self._note(line)
            self._line, self._next_at = line, self._clock() + LINE_SECONDS
        self._state = operation["status"]

    def lost(self, problem: str) -> None:
        self._note(f"{problem} Trying again.")


def _sentence(operation: Operation) -> str:
    metrics = looks.metrics(operation.get("metrics"))
    where = " · ".join(filter(None, pieces_of(operation)))
    return "  ".join(filter(None, (operation["status"], where, metrics)))


def pieces_of(operation: Operation) -> list[str]:
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
            by = looks.plain(operation.get("stop_requested_by") or "a deleted user")
            pieces.append(f"{stop} requested by {by}")
    return pieces


def _waiting(operation: Operation) -> str:
    if not_before := operation.get("not_before"):
        return f"restarts at {looks.at(not_before)}"
    return "waiting for a worker"


def _obstacle(operation: Operation) -> str:
    """Return why no worker takes it; nothing where one is about to."""
    wait = operation.get("waiting_for")
    if not wait or wait.get("code") in (None, "SOON", "PAUSED"):
        return ""
    return looks.plain(wait["message"])


def _say_how_to_go_on(session: Session, operation_id: str) -> None:
    session.out.note("\nStopped following; the operation continues.")
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
