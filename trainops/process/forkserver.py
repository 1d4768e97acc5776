"""A warm, single-threaded process that has torch imported and forks the attempts' children.

Importing torch and its first optimizer takes 3 to 5 seconds; a fork takes 20 ms. Forking is safe
here because this process has one thread, has never touched CUDA and opens no database.

Its worker is at the other end of the socket on descriptor 0: a request names the directory of the
child's temporary files, carries two descriptors (the child's end of the wire, and where its output
goes) and is answered with the child's pid; when a child has ended and nothing is left of its
process group, its wait status follows.
"""

import array
import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import tempfile
import traceback
from pathlib import Path

from trainops.process import exit_codes
from trainops.process.kinship import adopt_orphans, die_with

# In this order: what follows imports what came before. The optimizer's first use imports dynamo.
WARM = (
    "torch",
    "torch._dynamo",
    "sklearn.datasets",
    "pyarrow.parquet",
    "trainops.process.attempt_process",
)


def main() -> None:
    """Serve fork requests until the worker closes the line or dies."""
    worker_pid = int(sys.argv[1])
    die_with(worker_pid)
    adopt_orphans()  # those of a child come to us, and are reaped
    for name in WARM:
        importlib.import_module(name)
    _import_own_kinds()
    threads = list(Path("/proc/self/task").iterdir())
    if len(threads) > 1:  # one of them could hold a lock that its forked copy waits for in vain
        raise SystemExit(f"the forkserver must not fork with {len(threads)} threads")
    gc.collect()
    gc.freeze()  # no later collection writes to the pages that are shared with every child
    _ForkServer(socket.socket(fileno=0)).serve()


def _import_own_kinds() -> None:
    """Import configs and recipes that come with trainops, which every child looks up.

    Those of other packages are left to the children: their code may change between two attempts.
    """
    try:
        kinds = list(importlib.import_module("trainops.kind").KINDS.values())
    except Exception:  # noqa: BLE001 - of another package's kind; every attempt fails with it
        traceback.print_exc()
        return
    for path in [path for kind in kinds for path in (kind.config, *kind.recipes)]:
        if path.startswith("trainops."):
            importlib.import_module(path.partition(":")[0])


class _ForkServer:
    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.children: set[int] = set()
        self.bell, bell_in = os.pipe()
        os.set_blocking(bell_in, False)
        signal.set_wakeup_fd(bell_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)  # it ends with its worker, not before
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.line, selectors.EVENT_READ)
        self.selector.register(self.bell, selectors.EVENT_READ)

    def serve(self) -> None:
        self._say({"ready": os.getpid()})
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is not self.line:
                    os.read(self.bell, 4096)
                elif not self._answer():
                    self._end_all()
                    return
            self._reap()

    def _answer(self) -> bool:
        """Fork one child as asked; False at the end of the line."""
        size = array.array("i").itemsize
        request, ancillary, _, _ = self.line.recvmsg(4096, socket.CMSG_SPACE(2 * size))
        if not request:
            return False
        descriptors = array.array("i")
        for _, _, payload in ancillary:
            descriptors.frombytes(payload[: len(payload) - len(payload) % size])
        wire, output = descriptors
        asked = json.loads(request)
        pid = os.fork()
        if pid == 0:
            self._become_a_child(wire, output, asked["directory"])
        self.children.add(pid)
        os.close(wire)
        os.close(output)
        self._say({"key": asked["key"], "pid": pid})
        return True

    def _become_a_child(self, wire: int, output: int, directory: str | None) -> None:
        """Never returns."""
        code = exit_codes.ERROR  # unless the child says otherwise
        try:
            forkserver_pid = os.getppid()
            os.setsid()  # a session and a process group of its own: all of it can be killed at once
            die_with(forkserver_pid)
            signal.set_wakeup_fd(-1)
            self.selector.close()
            os.close(self.bell)
            self.line.close()
            _redirect(output)
            if directory is not None:
                _use(directory)
            with contextlib.suppress(OSError):  # the kernel's choice when memory runs out
                Path("/proc/self/oom_score_adj").write_text("500")
            # Looked up here, since this module stays free of torch until it is warm.
            code = importlib.import_module("trainops.process.attempt_process").main(wire)
        except BaseException as error:  # noqa: BLE001 - into the log; the code tells the rest
            traceback.print_exc()
            code = exit_codes.of(error)
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.children:  # else an orphan of one, whose group was killed already
                self.children.discard(pid)
                _kill_group(pid)
                self._say({"pid": pid, "status": os.waitstatus_to_exitcode(status)})

    def _end_all(self) -> None:
        for pid in self.children:
            _kill_group(pid)

    def _say(self, message: dict[str, object]) -> None:
        with contextlib.suppress(OSError):  # the worker is gone; the end of the line follows
            self.line.sendall(json.dumps(message).encode() + b"\n")


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _redirect(output: int) -> None:
    """Send what the child prints to its attempt's log, and give it nothing to read."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(nothing)
    os.close(output)


def _use(directory: str) -> None:
    """Have the child, and what it forks or starts, create temporary files in the directory."""
    os.environ["TMPDIR"] = directory
    tempfile.tempdir = directory  # instead of the one that was found before the fork


if __name__ == "__main__":
    main()
