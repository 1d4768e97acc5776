"""The warm processes of a check, and the calls to them."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from types import TracebackType
from typing import IO, Self, TypeVar

from trainops.checking.messages import Answer, Request
from trainops.checking.output import KEPT_BYTES, Output
from trainops.paths import ROOT
from trainops.process.wire import Hangup, Wire

HASH_SEEDS = (1, 2)
A = TypeVar("A", bound=Answer)


class NoAnswer(Exception):
    """The process of a request died or took too long; the message has its output."""


class CheckForkserver:
    """One warm process with a hash seed of its own."""

    def __init__(self, hash_seed: int) -> None:
        self._line, theirs = socket.socketpair()
        paths = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
        own = {"PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": os.pathsep.join(paths)}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the server
        self._process = subprocess.Popen(  # noqa: S603 - a module of ours
            [sys.executable, "-m", "trainops.checking.server", str(os.getpid())],
            stdin=theirs.fileno(),
            stdout=self._log,
            stderr=self._log,
            env=os.environ | own,
            start_new_session=True,
        )
        theirs.close()

    def call(self, request: Request, answer: type[A], timeout_seconds: float) -> A:
        """Return the answer of a new process. Raises NoAnswer."""
        ours, theirs = socket.socketpair()
        wire = Wire[A](ours, answer, float("inf"))
        output = Output()
        output.start()
        try:
            try:
                socket.send_fds(self._line, [b"1"], [theirs.fileno(), output.writing])
            finally:
                theirs.close()
                os.close(output.writing)
            wire.send(request)
            return _answer(wire, timeout_seconds)
        except (Hangup, OSError) as error:
            texts = (output.text(), _end_of(self._log))
            raise NoAnswer("\n".join(filter(None, texts)) or "it died") from error
        finally:
            wire.close()

    def close(self) -> None:
        """End the process and all that it started."""
        self._line.close()
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._log.close()


class Servers:
    """Two warm processes that differ in the hash seed. A context manager."""

    def __init__(self) -> None:
        self.first, self.second = (CheckForkserver(seed) for seed in HASH_SEEDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.first.close()
        self.second.close()


def _answer(wire: Wire[A], timeout_seconds: float) -> A:
    while wire.has_input(timeout_seconds):
        for answer in wire.read():
            return answer
    raise NoAnswer(f"it took longer than {timeout_seconds:.0f} s")


def _end_of(log: IO[bytes]) -> str:
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - KEPT_BYTES))
    return log.read().decode(errors="replace").strip()
