"""The background loops of a worker process, each in a thread that survives errors."""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections, connection
from django.utils import timezone

from trainops import backoff
from trainops.statement_timeout import at_most

logger = logging.getLogger(__name__)
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 1.0, 30.0


def retry_pause(num_failures: int) -> float:
    """Return the seconds to wait after this many failures in a row, within the two limits."""
    pause = backoff.seconds(
        num_failures, first=FIRST_RETRY_SECONDS, longest=LAST_RETRY_SECONDS, jitter=0.2
    )
    return min(max(pause, FIRST_RETRY_SECONDS), LAST_RETRY_SECONDS)


def report(task: str, error: Exception) -> None:
    """Log an error of a duty: an outage of the database in one line, a bug with its traceback."""
    if isinstance(error, DatabaseError | InterfaceError):
        logger.warning("%s: the database did not respond: %s", task, error)
    else:
        logger.error("%s", task, exc_info=error)


class BackgroundLoops:
    def __init__(self) -> None:
        self.are_stopped = threading.Event()
        self.trouble: str | None = None  # the last failure, until it is reported

    def start(
        self,
        seconds: float | Callable[[], float],
        task: Callable[[], None],
        name: str,
        *,
        longest_pause: float | None = None,
    ) -> None:
        """Repeat `task`; a round that failed is tried again sooner, or later where that is said.

        seconds: between the beginnings of two rounds; a function is called after each round.
        """
        interval = seconds if callable(seconds) else partial(float, seconds)
        arguments = (interval, task, longest_pause or interval())
        threading.Thread(target=self._repeat, args=arguments, name=name, daemon=True).start()

    def was_reported(self, trouble: str | None) -> None:
        if self.trouble is trouble:  # nothing new meanwhile
            self.trouble = None

    def _repeat(
        self, interval: Callable[[], float], task: Callable[[], None], longest_pause: float
    ) -> None:
        num_failures = 0
        while not self.are_stopped.is_set():
            began = time.monotonic()
            if self._is_done(task):
                num_failures, pause = 0, interval() - (time.monotonic() - began)
            else:
                num_failures += 1
                pause = min(retry_pause(num_failures), longest_pause)
            self.are_stopped.wait(max(0.05, pause))

    def _is_done(self, task: Callable[[], None]) -> bool:
        try:
            close_old_connections()  # a connection that died is never used again
            with at_most(settings.THRESHOLDS.patience_seconds):
                task()
        except Exception as error:  # noqa: BLE001 - a worker without this duty would be worse
            report(task.__name__, error)
            self._note(error)
        else:
            return True
        connection.close()
        return False

    def _note(self, error: Exception) -> None:
        name = threading.current_thread().name
        first_line = str(error).strip().partition("\n")[0][:500]
        moment = f"{timezone.now():%Y-%m-%d %H:%M:%S %Z}"
        self.trouble = f"{moment}, {name}: {type(error).__name__}: {first_line}"
