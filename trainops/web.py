"""`python -m trainops.web`: pages and API under granian, which is given a moment to say goodbye.

By itself granian closes its port within milliseconds of SIGTERM, and a worker that calls then
cannot tell a restart from a network that is broken. So the stop has two steps: SIGUSR1 (where
something else stops first, and pages are wanted meanwhile) or the first SIGTERM makes workers
hear 503 with Retry-After; SIGTERM after that, or the end of the moment, closes the port. Requests
that are being answered are finished in any case.
"""

import argparse
import multiprocessing
import os
import resource
import signal
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.mp import MPServer

from trainops import log_format
from trainops.gateway.gateway import Gateway
from trainops.gateway.live import LiveStreams
from trainops.http import closing

GOODBYE_SECONDS = 2.0
HEADER_MILLISECONDS = 15_000  # also how long a connection may rest between two requests
HEADER_BYTES = 64 * 1024
MAX_CONNECTIONS, OTHER_FILES = 8192, 256  # of each process
PROCESSES, MAX_PROCESSES = "TRAINOPS_WEB_PROCESSES", 64


def application() -> Any:
    """Return the ASGI application of one server process, which also sweeps: see `maintenance`."""
    from trainops.wsgi import application as django  # noqa: PLC0415, I001 - Django starts here
    from trainops.http.admission import Admission  # noqa: PLC0415

    # By name, as settings and urls do it: what assembles the apps stands outside their layers.
    import_module("apps.workers.maintenance").start_in_web()
    updates = import_module("apps.dashboard.operation_updates").updates
    streams = LiveStreams(django, import_module("apps.operations.versions"), updates)
    return Gateway(django, Admission(), streams=streams)


class Web(MPServer):
    def signal_handler_interrupt(self, *arguments: Any, **named: Any) -> None:
        stop: Callable[[], None] = super().signal_handler_interrupt
        if closing.is_announced():
            stop()
            return
        closing.announce()
        last = threading.Timer(GOODBYE_SECONDS, stop)
        last.daemon = True
        last.start()


def main(arguments: Sequence[str] | None = None) -> None:
    signal.signal(signal.SIGUSR1, lambda *_: closing.announce())
    chosen = _parser().parse_args(arguments)
    num_connections = _allow_connections()
    multiprocessing.set_start_method("fork")  # what answers shares memory with what hears signals
    web = Web(
        "trainops.web:application",
        factory=True,
        address=chosen.host,
        port=chosen.port,
        workers=chosen.processes,  # where one of them ends, all end: `up` starts the server again
        interface=Interfaces.ASGINL,
        # In HTTP/2 a body needs no length, and Django takes one without for empty.
        http=HTTPModes.http1,
        http1_settings=HTTP1Settings(
            header_read_timeout=HEADER_MILLISECONDS, max_buffer_size=HEADER_BYTES
        ),
        websockets=False,
        log_dictconfig=log_format.for_granian(),
        backlog=num_connections,
        backpressure=num_connections,  # granian counts connections, also those that rest
    )
    web.serve()


def _allow_connections() -> int:
    """Raise the limit of open files as far as needed; return how many connections it allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + OTHER_FILES
    num_files = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (num_files, hard))
    return max(1, num_files - OTHER_FILES)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainops.web", description="Serve.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument(
        "--processes",
        type=_number,
        default=os.environ.get(PROCESSES) or "1",
        help=f"processes that answer requests ({PROCESSES}; default: 1)",
    )
    return parser


def _number(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_PROCESSES:
        allowed = f"a number of processes, 1 to {MAX_PROCESSES} ({PROCESSES})"
        raise argparse.ArgumentTypeError(f"got {text[:20]!r}; allowed: {allowed}")
    return int(text)


if __name__ == "__main__":
    main()
