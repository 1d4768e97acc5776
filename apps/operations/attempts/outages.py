"""Outages of the database while an attempt runs."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db import connection

from apps.operations.attempts.finalization import AWAY
from apps.operations.attempts.inbox import TICK_SECONDS
from trainops.statement_timeout import at_most

logger = logging.getLogger(__name__)
REPEAT_SECONDS = 10.0  # between two warnings


class Outages:
    """Lets an attempt go on within its lease while the database does not answer."""

    def __init__(self, operation_id: str) -> None:
        self._operation_id, self._warned_at = operation_id, float("-inf")

    @contextmanager
    def tolerated(self) -> Iterator[None]:
        """Log what the database raises in this context, and go on after a tick.

        The caller keeps what could not be written, and tries again.
        """
        try:
            with at_most(settings.THRESHOLDS.patience_seconds):
                yield
        except AWAY as error:
            if time.monotonic() > self._warned_at + REPEAT_SECONDS:
                self._warned_at = time.monotonic()
                logger.warning("%s: could not write: %s", self._operation_id, error)
            connection.close()
            time.sleep(TICK_SECONDS)
