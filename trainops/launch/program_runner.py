"""A small process supervisor: starts programs in stages, restarts what dies, stops in order.

Single-threaded on purpose: the kernel's "parent died" signal belongs to the *thread* that made the
child, and a fork from a threaded process may inherit a held lock.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from trainops import backoff
from trainops.launch.program import Program, RunningProgram

TURN_SECONDS = 0.25
SAME_KEYPRESS_SECONDS = 0.5  # a terminal and a wrapping script may both deliver one Ctrl-C
WAITING_NOTICE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pauses before restarts; a program that ran for long enough starts with the first one."""

    first_seconds: float = 1.0
    most_seconds: float = 30.0
    forgotten_after_seconds: float = 60.0

    def num_failures(self, before: int, alive_seconds: float) -> int:
        """Return how many failures in a row there are with this one."""
        return 1 if alive_seconds >= self.forgotten_after_seconds else before + 1

    def delay(self, num_failures: int) -> float:
        return backoff.seconds(num_failures, first=self.first_seconds, longest=self.most_seconds)


@dataclass(slots=True)
class _Requests:
    """Stop requests so far: the first asks, the second forces."""

    first_at: float | None = None
    forced: bool = False

    def hear(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.first_at is None:
            self.first_at = now
        elif (
            number not in (signal.SIGHUP, signal.SIGUSR1)
            and now - self.first_at > SAME_KEYPRESS_SECONDS
        ):
            self.forced = True


@dataclass(slots=True)
class ProgramRunner:
    """Runs `programs` until a stop is requested.

    Stages start in ascending `start_stage`, each when every program of the one before is ready,
    and stop in ascending `stop_stage`. Programs that may end are not
    restarted after exit code 0. `after[stage]` is called once when that stage is ready; what
    it raises stops everything and is raised by run().
    """

    programs: Sequence[Program]
    log_dir: Path
    say: Callable[[str, str], None]  # (program, text)
    after: Mapping[int, Callable[[], None]] = field(default_factory=dict)
    backoff: Backoff = Backoff()
    _running: list[RunningProgram] = field(default_factory=list)
    _requests: _Requests = field(default_factory=_Requests)
    _wakeup: int = -1
    _poll: select.poll = field(default_factory=select.poll)

    def run(self) -> int:
        """Return 0 after a stop in order or the end of all programs, 1 after a forced stop."""
        self.log_dir.mkdir(parents=True, exist_ok=True)
        with self._signals(), _guard() as guard:
            try:
                for stage in sorted(
                    {program.start_stage for program in self.programs} | set(self.after)
                ):
                    self._start(stage, guard)
                    self._await_ready(stage)
                while not self._is_stopping() and not self._have_all_ended():
                    self._turn()
            finally:
                self._stop()
        return int(self._requests.forced)

    def _is_stopping(self) -> bool:
        return self._requests.first_at is not None

    def _have_all_ended(self) -> bool:
        return bool(self._running) and all(running.has_ended for running in self._running)

    def _start(self, stage: int, guard: int) -> None:
        if self._is_stopping():
            return
        for program in self.programs:
            if program.start_stage == stage:
                running = RunningProgram(program, self.log_dir / f"{program.name}.log", guard)
                self._running.append(running)
                self._begin(running)

    def _begin(self, running: RunningProgram) -> None:
        try:
            running.start()
        except OSError as error:  # its file is gone, the machine has no process left, …
            running.fail(str(error))
            self._plan_restart(running)

    def _await_ready(self, stage: int) -> None:
        waiting = [r for r in self._running if r.program.start_stage == stage]
        noticed_at = time.monotonic()
        while waiting and not self._is_stopping():
            waiting = [r for r in waiting if not (r.is_ready() or r.has_ended)]
            if waiting:
                self._turn()
            if waiting and time.monotonic() - noticed_at > WAITING_NOTICE_SECONDS:
                noticed_at = time.monotonic()
                self.say(waiting[0].program.name, f"not responding yet; see {waiting[0].log}")
        if stage in self.after and not self._is_stopping():
            self.after[stage]()

    def _turn(self) -> None:
        """Sleep until something happened, or a quarter of a second; then look at everything."""
        self._poll.poll(TURN_SECONDS * 1000)
        with suppress(BlockingIOError):
            os.read(self._wakeup, 4096)
        for running in self._running:
            has_ended = running.reap()
            for line in running.notable_lines():
                self.say(running.program.name, line)
            if self._is_stopping():
                continue
            if has_ended and running.has_ended:
                self.say(running.program.name, "has ended")
            elif has_ended:
                self._plan_restart(running)
            elif running.is_due():
                self._begin(running)

    def _plan_restart(self, running: RunningProgram) -> None:
        num_failures = self.backoff.num_failures(running.num_failures, running.alive_seconds)
        delay = self.backoff.delay(num_failures)
        running.plan_restart(delay, num_failures)
        self.say(running.program.name, f"{running.ending()}; restarting in {delay:g} s")

    def _stop(self) -> None:
        if self._requests.first_at is None:  # an error, not a person, ends the run
            self._requests.first_at = time.monotonic()
        for running in self._running:
            running.give_notice()
        for stage in sorted({r.program.stop_stage for r in self._running}):
            members = [r for r in self._running if r.program.stop_stage == stage and r.is_alive()]
            for running in members:
                self.say(running.program.name, running.program.stop_note)
                running.ask_to_stop()
            self._await_end(members)
        for running in self._running:
            running.close()

    def _await_end(self, members: Sequence[RunningProgram]) -> None:
        asked_at = time.monotonic()
        while any(running.is_alive() for running in members):
            if self._requests.forced:
                self.say("up", "forced stop: killing all processes")
                for running in self._running:
                    running.kill()
                return
            for running in members:
                late = time.monotonic() - asked_at > running.program.stop_seconds
                if late and running.is_alive():
                    self.say(running.program.name, "did not stop in time; killing it")
                    running.kill()
            self._turn()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Turn signals into a wake-up and a request; the previous handlers come back after."""
        self._wakeup, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll.register(self._wakeup, select.POLLIN)
        previous_fd = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        stops = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
        previous = {number: signal.signal(number, self._requests.hear) for number in stops}
        previous[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(previous_fd)
            self._poll.unregister(self._wakeup)
            os.close(self._wakeup)
            os.close(write)


@contextmanager
def _guard() -> Iterator[int]:
    """Start the process that ends our programs if we are killed; yields the pipe to name them."""
    script = str(Path(__file__).with_name("guard.py"))
    with subprocess.Popen(
        [sys.executable, "-I", "-S", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        bufsize=0,
    ) as process:
        assert process.stdin is not None  # noqa: S101 - stdin=PIPE
        yield process.stdin.fileno()
