"""A limit for work that takes a machine's memory: few at once, and one for each person."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from trainops.errors import DomainError

UPLOAD_WAIT_SECONDS = 60.0  # by uploads, which have threads of their own
RETRY_SECONDS = 10


class ServerBusy(DomainError):
    def __init__(self) -> None:
        super().__init__(
            "BUSY",
            "The server is already processing a file for you, or as many files as it "
            "can. Try again in a moment.",
            {"retry_after_seconds": RETRY_SECONDS},
            status=503,
            retry_after_seconds=RETRY_SECONDS,
        )


class ConcurrencyLimit:
    """At most `num` at once in this process, and one for each person."""

    def __init__(self, num: int) -> None:
        self._num_free = num
        self._people: set[str] = set()
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, person: str, *, wait_seconds: float = 0) -> Iterator[None]:
        """Count one of this person ("" for the server itself) within. Raises ServerBusy.

        Only a thread of an upload may wait: others answer pages and API, and are few.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_free(person), wait_seconds):
                raise ServerBusy
            self._num_free -= 1
            self._people.add(person)
        try:
            yield
        finally:
            with self._changed:
                self._num_free += 1
                self._people.discard(person)
                self._changed.notify_all()

    def _is_free(self, person: str) -> bool:
        return self._num_free > 0 and (not person or person not in self._people)
