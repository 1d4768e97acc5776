"""A second process of an attempt, forked before threads are started, that waits for requests."""

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from trainops.process.kinship import die_with
from trainops.process.protocol import Checked, ToSecond
from trainops.process.wire import Hangup, Wire

NICE = 5  # the run has processors before it, and it comes to an end on a busy machine, too
DIED = "its process has died"


class TwinFailed(Exception):
    """The second process sent no result; the message has the reason."""


class Twin:
    """Handle of the second process, which is in the same process group and dies with the first."""

    def __init__(self, pid: int, wire: Wire[Checked]) -> None:
        self.pid = pid
        self._wire = wire
        self._is_ended = False

    def has_died(self) -> bool:
        """Whether the process has ended by itself, or was killed by another one; does not wait."""
        if self._is_ended:
            return False
        try:
            self._is_ended = os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
        except ChildProcessError:
            self._is_ended = True
        if self._is_ended:
            self._wire.close()
        return self._is_ended

    def send(self, message: ToSecond) -> None:
        """Send a message; a dead process is detected by `answer`."""
        with contextlib.suppress(Hangup, OSError):
            self._wire.send(message)

    def answer(self, timeout_seconds: float) -> Checked:
        """Wait for the result, then end the process. Raises TwinFailed."""
        try:
            while self._wire.has_input(timeout_seconds):
                for answer in self._wire.read():
                    return answer
            raise TwinFailed(f"it took longer than {timeout_seconds:g} s")
        except Hangup as error:
            raise TwinFailed(DIED) from error
        finally:
            self.end()

    def end(self) -> None:
        """Kill the process and wait for it, once: its id may belong to another process later."""
        if self._is_ended:
            return
        self._is_ended = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self._wire.close()


def fork(work: Callable[[Wire[ToSecond]], None], *, closing: Sequence[int]) -> Twin | None:
    """Fork a process that runs `work` on its end of the pipe; None where that is impossible.

    It closes these descriptors, prints nothing, and is the first that a kernel without memory
    takes. To be called by a process of one thread.
    """
    ours, theirs = socket.socketpair()
    parent_pid = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        return None
    if pid:
        theirs.close()
        return Twin(pid, Wire(ours, Checked))
    try:
        die_with(parent_pid)
        for each in (ours.fileno(), *closing):
            os.close(each)
        _be_quiet()
        work(Wire(theirs, ToSecond, float("inf")))
    finally:
        os._exit(0)


def _be_quiet() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.nice(NICE)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
