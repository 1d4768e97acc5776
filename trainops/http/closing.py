"""Whether this web server is going away: workers are to ask again later, people are still served.

It is said in memory that a server's processes share: its main process hears the signal, and the
processes that were forked from it answer the requests.
"""

import mmap

from trainops.errors import DomainError

RETRY_AFTER_SECONDS = 10
_said = mmap.mmap(-1, 1)


class ServerClosing(DomainError):
    def __init__(self) -> None:
        super().__init__(
            "SHUTTING_DOWN",
            "The server is shutting down. Continue to work, and retry later.",
            {"retry_after_seconds": RETRY_AFTER_SECONDS},
            status=503,
            retry_after_seconds=RETRY_AFTER_SECONDS,
        )


def announce() -> None:
    _said[0] = 1


def is_announced() -> bool:
    return _said[0] == 1


def require_open() -> None:
    """Raises Closing after the server was asked to stop."""
    if is_announced():
        raise ServerClosing
