"""Counters of what has happened in this installation, which only grow.

Each process counts in memory and adds to the rows from time to time, so that counting costs the
work nothing and no row is fought for. A process that is killed loses what it counted since.
"""

import json
import logging
import threading
from collections import defaultdict

from django.db import DatabaseError, InterfaceError, transaction
from django.db.models import F

from apps.installation.models import Counter

logger = logging.getLogger(__name__)
FLUSH_SECONDS = 10.0
Key = tuple[str, str]  # name, labels as JSON


class Counters:
    """What this process has counted and not yet added to the rows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Key, float] = defaultdict(float)

    def add(self, name: str, value: float = 1.0, **labels: str) -> None:
        key = (name, labels_of(**labels))
        with self._lock:
            self._waiting[key] += value

    def add_on_commit(self, name: str, **labels: str) -> None:
        """Count what the current transaction does, if it does it."""
        transaction.on_commit(lambda: self.add(name, 1.0, **labels))

    def flush(self) -> None:
        """Add to the rows. Where the database is away, all is kept for the next time."""
        with self._lock:
            waiting, self._waiting = self._waiting, defaultdict(float)
        try:
            with transaction.atomic():
                for key in sorted(waiting):  # in one order: two processes wait, and never deadlock
                    _add(key, waiting[key])
        except (DatabaseError, InterfaceError):
            with self._lock:
                for key, value in waiting.items():
                    self._waiting[key] += value
            raise


def labels_of(**labels: str) -> str:
    """Return labels as a row has them."""
    return json.dumps(labels, sort_keys=True)


def _add(key: Key, value: float) -> None:
    row = Counter.objects.filter(name=key[0], labels=key[1])
    if not row.update(value=F("value") + value):
        Counter.objects.get_or_create(name=key[0], labels=key[1])
        row.update(value=F("value") + value)


COUNTERS = Counters()  # of this process
