"""What a worker process does again and again, each duty in a thread that outlives bad rounds."""

import logging
import random
import threading
import time
from collections.abc import Callable

from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections, connection
from django.utils import timezone

from trainops.patience import at_most

logger = logging.getLogger(__name__)
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 1.0, 30.0


def retry_pause(num_failures: int) -> float:
    """Return the pause after so many failures in a row: doubling, and never the same for many."""
    pause = min(FIRST_RETRY_SECONDS * 2.0 ** min(num_failures - 1, 10), LAST_RETRY_SECONDS)
    jittered = pause * random.uniform(0.8, 1.2)  # noqa: S311 - else all workers return at once
    return min(max(jittered, FIRST_RETRY_SECONDS), LAST_RETRY_SECONDS)


def report(duty: str, error: Exception) -> None:
    """Log an error of a duty: an outage of the database in one line, a bug with its traceback."""
    if isinstance(error, DatabaseError | InterfaceError):
        logger.warning("%s: the database did not answer: %s", duty, error)
    else:
        logger.error("%s", duty, exc_info=error)


class Duties:
    def __init__(self) -> None:
        self.are_over = threading.Event()
        self.trouble: str | None = None  # what went wrong last, until somebody was told

    def begin(
        self,
        seconds: float,
        duty: Callable[[], None],
        name: str,
        *,
        longest_pause: float | None = None,
    ) -> None:
        """Repeat `duty`; a round that failed is tried again sooner, or later where that is said."""
        arguments = (seconds, duty, longest_pause or seconds)
        threading.Thread(target=self._repeat, args=arguments, name=name, daemon=True).start()

    def has_been_told(self, trouble: str | None) -> None:
        if self.trouble is trouble:  # nothing new meanwhile
            self.trouble = None

    def _repeat(self, seconds: float, duty: Callable[[], None], longest_pause: float) -> None:
        num_failures = 0
        while not self.are_over.is_set():
            began = time.monotonic()
            if self._is_done(duty):
                num_failures, pause = 0, seconds - (time.monotonic() - began)
            else:
                num_failures += 1
                pause = min(retry_pause(num_failures), longest_pause)
            self.are_over.wait(max(0.05, pause))

    def _is_done(self, duty: Callable[[], None]) -> bool:
        try:
            close_old_connections()  # a connection that died is never used again
            with at_most(settings.THRESHOLDS.patience_seconds):
                duty()
        except Exception as error:  # noqa: BLE001 - a worker without this duty would be worse
            report(duty.__name__, error)
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
