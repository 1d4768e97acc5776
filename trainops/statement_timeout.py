"""A client-side timeout for database statements.

A frozen server, or one behind a proxy that lost the connection, may acknowledge every packet and
never respond. Timeouts of TCP and of the server do not detect this. `at_most` sets a limit for the
statements in a block: a thread closes the connection of a statement that takes longer, and the
statement raises OperationalError, as with any lost connection.
"""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS, connections
from psycopg.pq import TransactionStatus

LOOK_SECONDS = 0.2
SERVER_LIMITS = ("statement_timeout", "idle_in_transaction_session_timeout")  # see settings


@dataclass(slots=True)
class _Wait:
    wrapper: Any  # Django's connection of the thread in the block
    seconds: float
    since: float | None = None  # a statement has been running at every look since then

    def look(self, moment: float) -> None:
        pgconn = getattr(self.wrapper.connection, "pgconn", None)
        if pgconn is None or pgconn.transaction_status != TransactionStatus.ACTIVE:
            self.since = None
        elif self.since is None:
            self.since = moment
        elif moment - self.since > self.seconds:
            self.since = None
            _cut(pgconn)


class Patience:
    """Closes the connections of statements that take longer than their limit."""

    def __init__(self) -> None:
        self._waits: dict[int, _Wait] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @contextmanager
    def at_most(self, seconds: float) -> Iterator[None]:
        """Limit the time of each PostgreSQL statement in this block to about this many seconds.

        Other code in the block has no limit. (SQLite waits only for its lock, and has a timeout
        for it.)
        """
        wait = _Wait(connections[DEFAULT_DB_ALIAS], seconds)
        with self._lock:
            self._waits[id(wait)] = wait
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="patience", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                del self._waits[id(wait)]

    def _look(self) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            with self._lock:  # meanwhile no thread leaves a block and releases its connection
                for wait in self._waits.values():
                    wait.look(time.monotonic())


def _cut(pgconn: Any) -> None:
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(pgconn.socket)) as line:
        line.shutdown(socket.SHUT_RDWR)


at_most = Patience().at_most


@contextmanager
def unlimited() -> Iterator[None]:
    """Lift the limits that settings put on statements and idle transactions, as migrations need.

    They may rewrite large tables, and compute between two statements. The limit on waiting for a
    lock stays.
    """
    connection = connections[DEFAULT_DB_ALIAS]
    if connection.vendor != "postgresql":
        yield
        return
    with connection.cursor() as cursor:
        for name in SERVER_LIMITS:
            cursor.execute(f"SET {name} = 0")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            for name in SERVER_LIMITS:
                cursor.execute(f"RESET {name}")
