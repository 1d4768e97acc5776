import io
import json
import signal
import time
from functools import partial

import pytest
from rich.console import Console

from apps.operations.lifecycle import State
from apps.operations.models import LogChunk
from apps.operations.requests import services
from tests.operations.rows import in_state, submitted
from trainops.cli import following
from trainops.cli.bar import Bar
from trainops.cli.out import OutputFormat
from trainops.cli.session import Session
from trainops.client.problems import ExitCode, Problem, Refused, Unreachable

pytestmark = pytest.mark.slow

SECONDS = 20


def read_until(stream, text):
    """Read lines until one holds `text`; return all of them."""
    seen = []
    deadline = time.monotonic() + SECONDS
    for line in stream:
        seen.append(line)
        if text in line:
            return "".join(seen)
        assert time.monotonic() < deadline, seen
    raise AssertionError(f"no {text!r} in {''.join(seen)}")


def finish(operation, state, **fields):
    operation.row.update(state=state, lease_expires_at=None, **fields)


def test_watch_follows_to_the_end_and_tells_it_by_its_exit_code(start, ana):
    operation = submitted(ana)
    watch = start("watch", operation.pk)
    read_until(watch.stderr, "PENDING  waiting for a worker")
    lease = in_state(State.RUNNING, ana)
    operation.row.update(
        state=State.RUNNING, lease_expires_at=lease.lease_expires_at, step=5, total_steps=10,
        place="1 of 2 epochs", metrics={"val_loss": 0.5}, steps_per_second=0.5, unit="step",
    )  # fmt: skip
    seen = read_until(watch.stderr, "RUNNING")
    assert "50 % · 1 of 2 epochs · 10 s left · 0.5 steps/s  val_loss 0.5" in seen
    finish(operation, State.COMPLETED, step=10, metrics={"val_loss": 0.25})
    read_until(watch.stderr, "COMPLETED  val_loss 0.25")
    assert watch.wait(SECONDS) == ExitCode.OK
    assert watch.stdout.read() == ""


@pytest.mark.parametrize(
    ("state", "fields", "message"),
    [
        (
            State.FAILED,
            {"error": {"code": "NON_FINITE_LOSS", "message": "nan in step 7", "traceback": ""}},
            "error: the operation FAILED: NON_FINITE_LOSS: nan in step 7",
        ),
        (State.CANCELLED, {"step": 1, "total_steps": 4}, "CANCELLED at 25 %"),
    ],
)
def test_what_did_not_complete_is_a_failure_to_a_script(cli, ana, state, fields, message):
    operation = in_state(State.RUNNING, ana)
    finish(operation, state, **fields)
    ran = cli("watch", operation.pk)
    assert ran.exit_code == ExitCode.FAILED
    assert message in ran.stderr and ran.stderr.count(str(state)) == 1
    assert f"python3 -m trainops resume {operation.pk} --follow" in ran.stderr


def test_run_follow_with_json_prints_the_operation_as_it_ended(start, ana, wish):
    run = start("run", wish, "--follow", "-o", "json")
    operation_id = read_until(run.stderr, "follow").split()[-1]
    finish(services.get(operation_id), State.COMPLETED)
    stdout, _ = run.communicate(timeout=SECONDS)
    assert run.returncode == ExitCode.OK
    assert json.loads(stdout)["state"] == "COMPLETED"


@pytest.mark.parametrize("command", [["watch"], ["logs", "-f"]])
def test_ctrl_c_stops_only_the_following_and_says_how_to_go_on(start, ana, command):
    operation = in_state(State.RUNNING, ana)
    LogChunk.objects.create(operation=operation, attempt=1, text="begun\n")
    process = start(*command, operation.pk)
    read_until(process.stderr if command == ["watch"] else process.stdout, "")
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=SECONDS)
    assert process.returncode == ExitCode.INTERRUPTED
    assert "Stopped following; the operation continues." in stderr
    assert f"follow  python3 -m trainops watch {operation.pk}" in stderr
    assert f"cancel  python3 -m trainops cancel {operation.pk}" in stderr
    operation.refresh_from_db()
    assert (operation.state, operation.stop_requested) == (State.RUNNING, "")


def test_logs_are_followed_until_the_end(start, ana):
    operation = in_state(State.RUNNING, ana)
    LogChunk.objects.create(operation=operation, attempt=1, text="one\n")
    logs = start("logs", operation.pk, "-f")
    read_until(logs.stdout, "one")
    LogChunk.objects.create(operation=operation, attempt=1, text="two\n")
    read_until(logs.stdout, "two")
    finish(operation, State.COMPLETED)
    LogChunk.objects.create(operation=operation, attempt=1, text="last words\n")
    assert logs.communicate(timeout=SECONDS)[0] == "last words\n"
    assert logs.returncode == ExitCode.OK


def test_cancel_wait_returns_when_it_has_stopped(start, ana):
    operation = in_state(State.RUNNING, ana)
    cancel = start("cancel", operation.pk, "--wait", "-o", "json")
    deadline = time.monotonic() + SECONDS
    while not operation.row.filter(stop_requested="cancel").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    finish(operation, State.CANCELLED)
    stdout, _ = cancel.communicate(timeout=SECONDS)
    assert cancel.returncode == ExitCode.OK
    assert json.loads(stdout)["state"] == "CANCELLED"


RUNNING = {
    "operation_id": "op", "status": "RUNNING", "percent": 50.0, "place": "1 of 2 epochs",
    "unit": "step",
    "steps_per_second": 12.0, "eta_seconds": 61.0, "metrics": {"val_loss": 0.5},
    "stop_requested": "cancel", "stop_requested_by": "ben",
}  # fmt: skip


def test_a_terminal_gets_a_bar(monkeypatch):
    session = Session(url=None, token=None, output=OutputFormat.TABLE)
    screen = io.StringIO()
    monkeypatch.setattr(
        "trainops.cli.bar.console", lambda: Console(file=screen, force_terminal=True, width=80)
    )
    bar = Bar(session)
    with bar.shown():
        for operation in (
            {"operation_id": "op", "status": "PENDING", "queued_at": "2020-01-01T00:00:00Z"}
            | {"waiting_for": {"code": "NO_GPU", "message": "It needs a GPU."}},
            RUNNING,
            RUNNING | {"status": "RESUMING", "not_before": "2030-01-01T00:00:00Z"},
        ):
            bar.update(operation)
        bar.lost("No server at.")
    drawn = screen.getvalue()
    for piece in (
        "waiting for a worker for", "It needs a GPU.", "1 of 2 epochs", "12 steps/s",
        "1 min 1 s left", "cancel requested by ben", "val_loss 0.5", "━", "Trying again",
        "restarts at 2030-01-01 00:00:00 UTC",
    ):  # fmt: skip
        assert piece in drawn, piece


def test_a_finished_operation_has_no_bar(monkeypatch):
    """How it ended is said once, by the lines that follow."""
    session = Session(url=None, token=None, output=OutputFormat.TABLE)
    screen = io.StringIO()
    monkeypatch.setattr(
        "trainops.cli.bar.console", lambda: Console(file=screen, force_terminal=True, width=80)
    )
    bar = Bar(session)
    with bar.shown():
        bar.update(RUNNING)
        bar.update(RUNNING | {"status": "COMPLETED", "percent": 100.0})
    drawn = screen.getvalue()
    assert "RUNNING" in drawn and "COMPLETED" not in drawn
    assert drawn.rpartition("RUNNING")[2].count("\x1b[2K") >= 2  # its lines are erased


class Answers:
    """A server that is away for a while."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.seconds = 0.0

    def ask(self):
        answer = self.answers.pop(0)
        if answer is None:
            raise Unreachable("No server at.")
        if isinstance(answer, Exception):
            raise answer
        return answer

    def sleep(self, seconds):
        self.seconds += seconds

    def clock(self):
        return self.seconds


def test_a_server_that_comes_back_is_waited_for():
    server, messages = Answers(None, None, {"state": "RUNNING"}), []
    answer = following.patiently(
        server.ask, lost=messages.append, clock=server.clock, sleep=server.sleep
    )
    assert answer == {"state": "RUNNING"}
    assert messages == ["No server at."] * 2


def test_a_server_that_stays_away_is_given_up():
    server = Answers(*[None] * 1000)
    with pytest.raises(Unreachable):
        following.patiently(server.ask, lost=str, clock=server.clock, sleep=server.sleep)
    assert following.PATIENCE_SECONDS <= server.seconds <= following.PATIENCE_SECONDS + 2


def test_a_server_that_stays_away_is_given_up_at_a_time_limit():
    server = Answers(*[None] * 1000)
    ask = partial(following.patiently, server.ask, lost=str, until=5.0)
    with pytest.raises(Unreachable):
        ask(clock=server.clock, sleep=server.sleep)
    assert 5 <= server.seconds <= 7


@pytest.mark.parametrize("code", ["SERVICE_UNAVAILABLE", "SHUTTING_DOWN", "TOO_MANY_REQUESTS"])
def test_a_server_that_says_that_it_is_away_for_a_moment_is_waited_for(code):
    refused = Refused(code, "The database did not respond.", ExitCode.FAILED)
    server = Answers(refused, refused, {"state": "RUNNING"})
    ask = partial(following.patiently, server.ask, lost=str)
    assert ask(clock=server.clock, sleep=server.sleep) == {"state": "RUNNING"}


def test_any_other_refusal_ends_the_wait():
    server = Answers(Refused("NOT_FOUND", "There is none.", ExitCode.NOT_FOUND))
    with pytest.raises(Refused):
        following.patiently(server.ask, lost=str, clock=server.clock, sleep=server.sleep)


def test_a_failure_without_a_message_is_still_reported():
    problem = following.failure({"id": "op", "reason": "WORKER_LOST", "error": None})
    assert isinstance(problem, Problem)
    assert "WORKER_LOST" in str(problem)
