"""A warm process that has torch imported and forks a process for each request of a check.

Its hash seed is that of its environment. It receives the descriptors of the child's socket and
output on descriptor 0, and ends with the check.
"""

import importlib
import os
import signal
import socket
import sys
import traceback

from trainops.process.forkserver import WARM
from trainops.process.kinship import die_with


def main() -> None:
    """Serve fork requests until the check closes the line or dies."""
    die_with(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in (*WARM, "trainops.checking.tasks"):
        importlib.import_module(name)
    line, children = socket.socket(fileno=0), set[int]()
    while True:
        request, descriptors, _, _ = socket.recv_fds(line, 1, 2)
        _reap(children)
        if not request:
            break
        pid = os.fork()
        if pid == 0:
            line.close()
            _work(*descriptors)
        children.add(pid)
        for each in descriptors:
            os.close(each)
    for pid in children:
        os.killpg(pid, signal.SIGKILL)
    os._exit(0)


def _reap(children: set[int]) -> None:
    for pid in tuple(children):
        if os.waitpid(pid, os.WNOHANG)[0]:
            children.discard(pid)


def _work(wire: int, log: int) -> None:
    """Become the child. Never returns; nothing that it started outlives it."""
    server_pid = os.getppid()
    os.setsid()
    try:
        die_with(server_pid)
        for standard in (1, 2):
            os.dup2(log, standard)
        # Looked up here, since this module stays free of torch until it is warm.
        importlib.import_module("trainops.checking.tasks").work(socket.socket(fileno=wire))
    except BaseException:  # noqa: BLE001 - into the log, whose end the check shows
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
