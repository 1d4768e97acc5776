"""The process of another rank, as its parent (rank 0) sees it: forked, read from, ended.

It is forked before there are threads, into the process group of rank 0, and the kernel ends it with
rank 0. What it prints goes to the attempt's log, each line with its rank.
"""

import faulthandler
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainops.process import exit_codes
from trainops.process.kinship import die_with
from trainops.process.rank_process import RankConnection
from trainops.process.rank_protocol import Captured, Done, RankError, ToRank, ToRankZero
from trainops.process.rendezvous import Rendezvous
from trainops.process.wire import Hangup, Wire
from trainops.runtime.errors import RankFailed, RankLost
from trainops.runtime.ranks import Devices
from trainops.signal_names import signal_name

END_SECONDS = 1.0
STACK_SECONDS = 0.3  # until a process has printed its stack
CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)
LINE_BYTES = 2**16  # a longer line of a log is split


@dataclass(slots=True)
class RankHandle:
    """One other rank, in a process that is a child of this one."""

    number: int
    pid: int
    wire: Wire[ToRankZero]
    shared: Path  # memory that both processes have
    output: int  # descriptor to read what it prints
    answers: list[Done | Captured] = field(default_factory=list)  # not taken yet
    error: RankError | None = None
    status: int | None = None  # of its end, as `os.waitstatus_to_exitcode` gives it

    def send(self, message: ToRank) -> None:
        """Send a message to the process. Raises Hangup."""
        self.wire.send(message)

    def read(self) -> None:
        """Take what it sent; notice its end."""
        try:
            for message in self.wire.read():
                if isinstance(message, RankError):
                    self.error = message
                else:
                    self.answers.append(message)
        except Hangup:
            self.end(END_SECONDS)

    def problem(self) -> RankFailed | RankLost | None:
        """Return why it will not answer any more, if that is so."""
        if self.error is not None:
            error = self.error
            return RankFailed(self.number, error.code, error.message, error.traceback)
        return None if self.status is None else lost(self.number, self.status)

    def end(self, seconds: float) -> None:
        """Wait for its end, and kill it if that does not come in time."""
        deadline = time.monotonic() + seconds
        while self.status is None and time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
            time.sleep(0.002)
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def hanging(self, seconds: float) -> RankLost:
        """Return the error of a process that does not respond; it prints its stack to the log."""
        os.kill(self.pid, signal.SIGUSR2)
        time.sleep(STACK_SECONDS)
        return RankLost(self.number, "STALLED", f"did not respond within {seconds:g} s")

    def forward(self) -> None:
        """Copy what it prints to the own output, until it has ended."""
        prefix, rest = f"[rank {self.number}] ".encode(), b""
        while some := os.read(self.output, LINE_BYTES):
            *lines, rest = (rest + some).split(b"\n")
            if len(rest) > LINE_BYTES:
                lines, rest = [*lines, rest], b""
            os.write(1, b"".join(prefix + line + b"\n" for line in lines))
        if rest:
            os.write(1, prefix + rest + b"\n")


def lost(number: int, status: int, where: str = "") -> RankLost:
    """Return the error of a rank whose process has ended; where: its host, with a space."""
    if status >= 0:
        code = "PLATFORM_ERROR" if status == exit_codes.ERROR else "PROCESS_EXITED"
        return RankLost(number, code, f"{where}ended with exit code {status}")
    code = "SEGMENTATION_FAULT" if -status in CRASHES else "PROCESS_KILLED"
    return RankLost(number, code, f"{where}ended by {signal_name(-status)}")


def fork(
    devices: Devices,
    rendezvous: Rendezvous,
    work: Callable[[RankConnection], None],
    *,
    closing: Sequence[int],
    is_quiet: bool,
) -> RankHandle:
    """Fork the process of one rank, which does `work` and closes these descriptors.

    is_quiet: it prints where its parent does. To be called by a process of one thread.
    """
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()
    shared = Path(f"/proc/self/fd/{os.memfd_create(f'rank{devices.rank}')}")
    parent_pid = os.getpid()
    pid = os.fork()
    if pid:
        theirs.close()
        os.close(writing)
        return RankHandle(devices.rank, pid, Wire(ours, ToRankZero), shared, reading)
    code = exit_codes.ERROR
    try:
        die_with(parent_pid)
        for each in (ours.fileno(), reading, *closing):
            os.close(each)
        _print_to(None if is_quiet else writing)
        work(RankConnection(devices, Wire(theirs, ToRank), shared, rendezvous))
        code = 0
    except BaseException as error:  # noqa: BLE001 - into the log; the code tells the rest
        traceback.print_exc()
        code = exit_codes.of(error)
    finally:
        sys.stdout.flush()
        os._exit(code)


def _print_to(output: int | None) -> None:
    if output is not None:
        os.dup2(output, 1)
        os.dup2(output, 2)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    faulthandler.register(signal.SIGUSR2, file=2, all_threads=True)
