"""Children as the worker sees them: started in the forkserver, spoken to by wire, verified gone."""

import array
import contextlib
import json
import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TypedDict

import psutil

from apps.operations.attempts import temporary_files
from apps.operations.attempts.temporary_files import TemporaryFiles
from trainops import backoff
from trainops.paths import ROOT
from trainops.process.protocol import ToSupervisor
from trainops.process.wire import Wire

logger = logging.getLogger(__name__)
BIRTH_SECONDS = 20.0
SHORT_SECONDS, LONG_SECONDS = 0.05, 5.0  # the waits between two kills of a child

# What the forkserver imports must not start threads: it forks. (torch sets its own number later.)
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}

# By default OpenMP's threads spin for milliseconds while they wait for each other. As soon as two
# operations share the cores they burn each other's time: 330 ms a step instead of 26 were seen.
SPIN_BRIEFLY = {"GOMP_SPINCOUNT": "300"}

# The order of a set of texts is another in each process that starts with a seed of its own, so a
# job that depends on one would continue with another order.
ONE_HASH_ORDER = {"PYTHONHASHSEED": "0"}


class ForkServerUnavailable(Exception):
    """The process that forks children could not be started, or died."""


@dataclass(slots=True)
class Child:
    """One attempt's process, leader of its own process group."""

    pid: int
    wire: Wire[ToSupervisor]
    output: int  # descriptor to read what it prints
    directory: Path | None = None  # of its temporary files; None: those of all processes
    _ended: "queue.SimpleQueue[int | None]" = field(default_factory=queue.SimpleQueue)
    _exit: int | None = None
    _has_ended: bool = False
    is_gone: bool = False

    def kill(self) -> None:
        """Kill its whole process group, now."""
        if self.pid <= 0:
            return  # never born; 0 would be our own group
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill it, as often as it takes, and wait until it and its whole group are gone.

        A child that was born a moment ago does not lead a group yet: the first kill can miss it.
        A forkserver that is frozen reports no end, and does not reap: then what lives counts.
        """
        for num_kills in count(1):
            self.kill()
            seconds = backoff.seconds(num_kills, first=SHORT_SECONDS, longest=LONG_SECONDS)
            if self.wait(seconds):
                return
            if not self._has_ended and not _has_living_member(self.pid):
                self.is_gone = True
                return
            if seconds >= LONG_SECONDS:
                logger.error("process group %s does not go away", self.pid)

    def wait(self, seconds: float) -> bool:
        """Wait for its end; True once it and its whole group are gone."""
        if not self._has_ended:
            with contextlib.suppress(queue.Empty):
                self._exit = self._ended.get(timeout=seconds)
                self._has_ended = True
        if self._has_ended and not self.is_gone:
            self.is_gone = _group_is_gone(self.pid, seconds=max(seconds, 1.0))
        return self.is_gone

    @property
    def exit_code(self) -> int | None:
        """As `subprocess` gives it (negative: a signal); None if the forkserver died with it."""
        return self._exit

    def close(self) -> None:
        """Close the descriptors and remove the temporary files, after its end."""
        self.wire.close()
        os.close(self.output)
        if self.directory is not None:
            temporary_files.remove(self.directory)


def _group_is_gone(pid: int, *, seconds: float) -> bool:
    """Verify by the kernel that no process of the group is left, killing stragglers."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            return True
        except PermissionError:
            return True  # the pid belongs to another process now: ours is gone
        time.sleep(0.005)
    return not _has_living_member(pid)


def _has_living_member(group: int) -> bool:
    """Whether any process of the group, or who is to lead it, is more than an unreaped zombie."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            is_member = group in (process.pid, os.getpgid(process.pid))
            if is_member and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False


@dataclass(frozen=True, slots=True)
class _Birth:
    """A child that was asked for; the starter thread names it as soon as it lives."""

    key: str
    child: Child
    answer: "queue.SimpleQueue[bool]" = field(default_factory=queue.SimpleQueue)


class Notice(TypedDict, total=False):
    """A line of the forkserver: it is ready, a child was born, or a child has ended."""

    ready: int  # the forkserver's process id
    key: str  # of the request that this child answers
    pid: int
    status: int  # the child's exit code


class ForkServer:
    """Starts children; starts itself again when it died. Safe to use from many threads.

    `when_ready` is called whenever it has warmed up: in its own thread, which must not wait there.
    """

    def __init__(self, when_ready: Callable[[], None] = lambda: None) -> None:
        self._when_ready = when_ready
        self._lock = threading.Lock()
        self._line: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._expected: _Birth | None = None
        self._children: dict[int, Child] = {}
        self._ready = threading.Event()
        self._closed = False
        self.temporary_files = TemporaryFiles()
        # The kernel kills the forkserver when the *thread* that started it ends, so one thread that
        # lives as long as the worker starts it, and starts it again.
        self._starter = threading.Thread(target=self._keep, name="forkserver", daemon=True)

    def open(self) -> None:
        """Begin to warm up; returns at once."""
        self._starter.start()

    @property
    def is_ready(self) -> bool:
        """Whether a child can be had at once."""
        return self._ready.is_set()

    def start(self, key: str, *, warm_up_seconds: float = 20) -> Child:
        """Fork a child; its first message is still to be sent to it.

        Raises:
            ForkServerUnavailable: none could be started in time.
        """
        if not self._ready.wait(warm_up_seconds):
            raise ForkServerUnavailable(
                "the process that starts children does not come up; see the worker's log"
            )
        child, theirs, writing = self._unborn()
        try:
            with self._lock:
                self._request(_Birth(key, child), theirs.fileno(), writing)
        except (OSError, queue.Empty, ForkServerUnavailable) as error:
            child.close()
            raise ForkServerUnavailable(f"no child could be started: {error!r}") from error
        finally:
            theirs.close()
            os.close(writing)
        return child

    def _unborn(self) -> tuple[Child, socket.socket, int]:
        """Return a child before it is forked, and its ends of the wire and of its output."""
        with contextlib.ExitStack() as undone:
            try:
                directory = self.temporary_files.new()
                if directory is not None:
                    undone.callback(temporary_files.remove, directory)
                ours, theirs = map(undone.enter_context, socket.socketpair())
                reading, writing = os.pipe()
            except OSError as error:
                raise ForkServerUnavailable(f"nothing to start a child with: {error}") from error
            undone.pop_all()
        return Child(0, Wire(ours, ToSupervisor), reading, directory), theirs, writing

    def _request(self, birth: "_Birth", *descriptors: int) -> None:
        if self._line is None:
            raise ForkServerUnavailable("it is not open")
        fds = array.array("i", descriptors)
        directory = birth.child.directory
        request = {"key": birth.key, "directory": None if directory is None else str(directory)}
        self._expected = birth
        try:
            self._line.sendmsg(
                [json.dumps(request).encode()],
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)],
            )
            if not birth.answer.get(timeout=BIRTH_SECONDS):
                raise ForkServerUnavailable("it died while it was asked")
        finally:
            self._expected = None

    def close(self) -> None:
        """End the forkserver and with it every child."""
        self._closed = True
        with contextlib.suppress(OSError):
            if self._line is not None:
                self._line.shutdown(socket.SHUT_RDWR)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        self.temporary_files.close()

    def _keep(self) -> None:
        while not self._closed:
            started_at = time.monotonic()
            try:
                self._run()
            except Exception:  # whatever it is: this thread starts it again
                logger.exception("the forkserver could not be started, or not be heard")
            self._ready.clear()
            self._mourn()
            if not self._closed:
                logger.error("the forkserver died; starting it again")
                time.sleep(max(0.0, 1.0 - (time.monotonic() - started_at)))

    def _run(self) -> None:
        self.temporary_files.open()
        ours, theirs = socket.socketpair()
        defaults = SPIN_BRIEFLY | temporary_files.compile_cache()
        required = ONE_THREAD | ONE_HASH_ORDER | {"PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "trainops.process.forkserver", str(os.getpid())],
            stdin=theirs.fileno(),
            cwd=ROOT,
            env=defaults | os.environ | required,
            start_new_session=True,
        )
        theirs.close()
        self._line = ours
        with ours, ours.makefile("rb") as lines:
            for line in lines:
                self._hear(json.loads(line))
        self._process.wait()

    def _hear(self, message: Notice) -> None:
        if "ready" in message:
            self._ready.set()
            try:
                self._when_ready()
            except Exception:  # no thread could be started; a later look finds the work
                logger.exception("no look for work when the forkserver was ready")
        elif "status" in message:
            if child := self._children.pop(message["pid"], None):
                child._ended.put(message["status"])
        elif (birth := self._expected) is not None and birth.key == message["key"]:
            # Named and listed before anything else is read: its end may be the next line.
            birth.child.pid = message["pid"]
            self._children[message["pid"]] = birth.child
            birth.answer.put(True)
        else:  # started too late: no attempt waits for it any more
            with contextlib.suppress(ProcessLookupError):
                os.killpg(message["pid"], signal.SIGKILL)

    def _mourn(self) -> None:
        """The forkserver is gone, and by PR_SET_PDEATHSIG every child with it."""
        if (birth := self._expected) is not None:
            birth.answer.put(False)
        while self._children:
            _, child = self._children.popitem()
            child.kill()
            child._ended.put(None)
