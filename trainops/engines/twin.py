"""A second process of an attempt, forked before there are threads, that waits for work."""

import contextlib
import os
import select
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trainops.engines.kinship import die_with
from trainops.engines.wire import Hangup, Message, Wire

NICE = 5  # the run has processors before it, and it comes to an end on a busy machine, too


class TwinFailed(Exception):
    """There is no answer; the message says why."""


class Twin:
    """The first process's end of the line. It belongs to its process group, and dies with it."""

    def __init__(self, pid: int, wire: Wire) -> None:
        self.pid = pid
        self._wire = wire

    def tell(self, kind: str, **fields: Any) -> None:
        """Tell it something; that nobody hears is found when an answer is wanted."""
        with contextlib.suppress(Hangup, OSError):
            self._wire.send(kind, **fields)

    def answer(self, timeout_seconds: float) -> Message:
        """Wait for what it says, and end it. Raises TwinFailed."""
        try:
            while select.select([self._wire], [], [], timeout_seconds)[0]:
                for answer in self._wire.read():
                    return answer
            raise TwinFailed(f"it took longer than {timeout_seconds:g} s")
        except Hangup as error:
            raise TwinFailed("its process has died") from error
        finally:
            self.end()

    def end(self) -> None:
        """Kill it; nothing of it is left."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self._wire.close()


def fork(work: Callable[[Wire], None], *, closing: Sequence[int]) -> Twin | None:
    """Return a process that does this work over its end of the line, or None where there is none.

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
        return Twin(pid, Wire(ours))
    try:
        die_with(parent_pid)
        for each in (ours.fileno(), *closing):
            os.close(each)
        _be_quiet()
        work(Wire(theirs, float("inf")))
    finally:
        os._exit(0)


def _be_quiet() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.nice(NICE)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
