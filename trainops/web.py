"""`python -m trainops.web`: pages and API under granian, which is given a moment to say goodbye.

By itself granian closes its port within milliseconds of SIGTERM, and a worker that calls then
cannot tell a restart from a network that is broken. So it is told in two steps: SIGUSR1 (where
something else stops first, and pages are wanted meanwhile) or the first SIGTERM makes workers
hear 503 with Retry-After; SIGTERM after that, or the end of the moment, closes the port. Requests
that are being answered are finished in any case.
"""

import argparse
import multiprocessing
import signal
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.mp import MPServer

from trainops.http import closing

GOODBYE_SECONDS = 2.0


def application() -> Any:
    """Return the WSGI application of one server process, which also sweeps: see `maintenance`."""
    from trainops.wsgi import application as served  # noqa: PLC0415 - Django starts here

    # By name, as settings and urls do it: what assembles the apps stands outside their layers.
    import_module("apps.workers.maintenance").start_in_web()
    return served


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
    multiprocessing.set_start_method("fork")  # what answers shares memory with what hears signals
    web = Web(
        "trainops.web:application",
        factory=True,
        address=chosen.host,
        port=chosen.port,
        interface=Interfaces.WSGI,
        # In HTTP/2 a body needs no length, and Django takes one without for empty.
        http=HTTPModes.http1,
        http1_settings=HTTP1Settings(),
        websockets=False,
        blocking_threads=chosen.threads,
        backpressure=2 * chosen.threads,
    )
    web.serve()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainops.web", description="Serve.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--threads", type=int, default=4, help="requests answered at a time")
    return parser


if __name__ == "__main__":
    main()
