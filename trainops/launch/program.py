"""One program under the supervisor: what it is, and the process that it is now."""

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from trainops.launch.identity import identity
from trainops.launch.tail import Tail
from trainops.signal_names import signal_name

PR_SET_PDEATHSIG = 1
NOTABLE = re.compile(r"\b(WARNING|ERROR|CRITICAL|FATAL|PANIC)\b|^[\w.]*(Error|Exception)\b")


@dataclass(frozen=True, slots=True)
class Program:
    """A command line and how it is kept alive and ended."""

    name: str
    command: Sequence[str]
    start_stage: int = 0
    stop_stage: int = 0
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    cwd: Path = field(default_factory=Path.cwd)
    user: str | None = None  # whom to run it as, when we are root
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: float = 10.0  # from the signal until it is killed
    notice_signal: signal.Signals | None = None  # what it gets when the first of all is stopped
    stop_note: str = "stopping"  # printed meanwhile
    may_end: bool = False  # exit code 0 is its end, not a failure
    orphan_signal: signal.Signals = signal.SIGTERM  # what it gets when the supervisor is killed
    is_ready: Callable[[], bool] | None = None  # quick, and never raises
    notable: re.Pattern[str] = NOTABLE  # lines of its output that a person should see


@dataclass(slots=True)
class RunningProgram:
    """A program with its present process, if it has one."""

    program: Program
    log: Path
    guard: int  # the pipe that tells the guard which groups to end after us
    num_failures: int = 0  # in a row
    alive_seconds: float = 0.0
    restart_at: float | None = None
    has_ended: bool = False  # as it may: it is not started again
    _process: "subprocess.Popen[bytes] | None" = None
    _started_at: float = 0.0
    _ending: str = ""
    _tail: Tail = field(init=False)

    def __post_init__(self) -> None:
        self._tail = Tail(self.log, self.program.notable)

    def start(self) -> None:
        self.restart_at = None
        self._started_at = time.monotonic()
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self.program.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.program.env,
                cwd=self.program.cwd,
                **identity(self.program.user),
                start_new_session=True,  # the terminal's Ctrl-C is for the supervisor alone
                preexec_fn=_die_with_parent(self.program.orphan_signal),
            )
        self._tell_guard(b"+%d\n" % self._process.pid)

    def fail(self, reason: str) -> None:
        """It could not even be started."""
        self._ending = reason
        self.alive_seconds = 0.0

    def is_due(self) -> bool:
        return self.restart_at is not None and time.monotonic() >= self.restart_at

    def plan_restart(self, delay: float, num_failures: int) -> None:
        self.num_failures = num_failures
        self.restart_at = time.monotonic() + delay

    def is_alive(self) -> bool:
        return self._process is not None

    def is_ready(self) -> bool:
        return self._process is not None and (
            self.program.is_ready is None or self.program.is_ready()
        )

    def reap(self) -> bool:
        """Whether the process has ended since the last look; what it left behind ends with it."""
        if self._process is None or self._process.poll() is None:
            return False
        self._ending = _describe(self._process.returncode)
        self.has_ended = self.program.may_end and self._process.returncode == 0
        self.alive_seconds = time.monotonic() - self._started_at
        # A server whose main process was killed may leave children that still hold its port.
        _kill_group(self._process.pid)
        self._tell_guard(b"-%d\n" % self._process.pid)
        self._process = None
        return True

    def ending(self) -> str:
        """How the last process ended, with its last word if it ended by itself."""
        last = self._tail.last_line if self._ending.startswith("ended") else ""
        return self._ending + (f" ({last})" if last else "")

    def give_notice(self) -> None:
        """Tell it that the stop has begun, though its own turn may come later."""
        if self._process is not None and self.program.notice_signal is not None:
            self._process.send_signal(self.program.notice_signal)

    def ask_to_stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(self.program.stop_signal)

    def kill(self) -> None:
        """End the whole group, and whatever its members started in groups of their own."""
        if self._process is None:
            return
        for pid in descendants(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _kill_group(self._process.pid)
        self._process.wait()
        self.reap()

    def notable_lines(self) -> Iterator[str]:
        return self._tail.notable_lines()

    def close(self) -> None:
        self._tail.close()

    def _tell_guard(self, message: bytes) -> None:
        with suppress(BrokenPipeError):  # without its guard a program still runs
            os.write(self.guard, message)


def descendants(pid: int) -> list[int]:
    """Every process below `pid` (Linux; empty where /proc does not exist)."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended while we looked
            # pid (name) state ppid …; the name may hold spaces and parentheses.
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found, new = set[int](), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return sorted(found)


def _describe(exit_code: int) -> str:
    if exit_code < 0:
        return f"killed by {signal_name(-exit_code)}"
    return f"ended with exit code {exit_code}"


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _die_with_parent(number: signal.Signals) -> Callable[[], None] | None:
    """What the child does before exec: asks the kernel for `number` when we die (Linux)."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl  # looked up here: no imports after the fork
    parent = os.getpid()

    def ask() -> None:
        prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:  # it died before we could ask
            os._exit(1)

    return ask
