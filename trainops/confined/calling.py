"""Call a function in a confined process."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import IO, Any

from trainops.confined.limits import Limits
from trainops.paths import ROOT

MAX_ANSWER_BYTES = 64 * 2**20
MAX_ERROR_BYTES = 64 * 2**10
# All that it gets of this process's environment: which recipes there are, and where code is.
KEPT = (
    "PATH",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "TRAINOPS_RECIPES",
)
SET = {
    "CUDA_VISIBLE_DEVICES": "",  # a GPU's driver reserves more addresses than any limit allows
    "MALLOC_ARENA_MAX": "2",  # the others reserve addresses, which count as memory
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # reserves nothing ahead of its use
}
NO_MEMORY = ("MemoryError", "bad_alloc", "can't allocate memory", "Cannot allocate memory")


class ConfinedProcessFailed(Exception):
    """The process gave no answer; `log` is the end of what it wrote to stderr."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class OutOfTime(ConfinedProcessFailed):
    """It took longer than allowed."""


class OutOfMemory(ConfinedProcessFailed):
    """It took more memory than allowed."""


class Killed(ConfinedProcessFailed):
    """It died of a signal, as a parser does that a file has broken."""


def call(
    module: str, request: Mapping[str, object], limits: Limits, *, kept: Iterable[str] = ()
) -> Any:
    """Return what `answer(request)` of this module returns in a confined process.

    JSON carries both; callers name the type of the answer. `kept` are further variables that the
    process gets of the environment: secrets only for a module that parses nothing. Raises Failed.
    """
    payload = json.dumps({"limits": asdict(limits), "request": request, "parent": os.getpid()})
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as log:
        process = subprocess.Popen(  # noqa: S603 - a module of ours, by its name
            [sys.executable, "-m", "trainops.confined", module],
            stdin=subprocess.PIPE,
            stdout=answer,
            stderr=log,
            cwd=ROOT,
            env=SET | {name: os.environ[name] for name in (*KEPT, *kept) if name in os.environ},
            start_new_session=True,
        )
        try:
            process.communicate(payload.encode(), timeout=limits.seconds)
        except subprocess.TimeoutExpired:
            raise OutOfTime(f"It takes longer than {limits.seconds} seconds.") from None
        finally:
            _end(process)
        if process.returncode:
            raise _failed(process.returncode, _end_of(log), limits)
        if answer.seek(0, os.SEEK_END) > MAX_ANSWER_BYTES:
            raise ConfinedProcessFailed(f"The response has more than {MAX_ANSWER_BYTES} bytes.")
        answer.seek(0)
        return json.load(answer)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the process and of those that it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _failed(code: int, log: str, limits: Limits) -> ConfinedProcessFailed:
    if any(sign in log for sign in NO_MEMORY):
        return OutOfMemory(f"It takes more than {limits.memory_bytes} bytes of memory.", log)
    if code == -signal.SIGXCPU:
        return OutOfTime(f"It takes longer than {limits.seconds} seconds.", log)
    if code < 0:
        return Killed(f"The process was killed by signal {-code}.", log)
    return ConfinedProcessFailed(log.strip().rpartition("\n")[2][:300], log)


def _end_of(log: IO[bytes]) -> str:
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - MAX_ERROR_BYTES))
    return log.read().decode(errors="replace")
