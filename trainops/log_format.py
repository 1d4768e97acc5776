"""The format of logs: lines for people, or JSON objects with operation, attempt and request.

What a log line belongs to is remembered for each thread and request, so that every line of it says
so, also one of a library.
"""

import json
import logging
import os
import re
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

VARIABLE, FORMATS = "TRAINOPS_LOG_FORMAT", ("line", "json")
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
HOST = socket.gethostname()

_context: ContextVar[Mapping[str, object] | None] = ContextVar("log_context", default=None)


def read(environment: Mapping[str, str] = os.environ) -> str:
    """Return the format that TRAINOPS_LOG_FORMAT names. Raises ValueError."""
    given = environment.get(VARIABLE, "").strip() or FORMATS[0]
    if given not in FORMATS:
        raise ValueError(f"{VARIABLE} is {given!r}; allowed: {', '.join(FORMATS)}")
    return given


@contextmanager
def about(**values: object) -> Iterator[None]:
    """Name what the log lines of this block belong to, such as operation and attempt."""
    reset = _context.set({**(_context.get() or {}), **values})
    try:
        yield
    finally:
        _context.reset(reset)


def also(**values: object) -> None:
    """Name more of the block around: of a request, for example, what its address names."""
    _context.set({**(_context.get() or {}), **values})


def current() -> dict[str, object]:
    """Return what log lines belong to at this place."""
    return dict(_context.get() or {})


def request_id(given: str) -> str:
    """Return the id of a request: that of its client or proxy if it is one, else a new one."""
    return given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)


def for_granian() -> dict[str, Any] | None:
    """Return what the web server's own log lines need for JSON; None: they stay as they are."""
    if read() != "json":
        return None
    own = {"()": "trainops.log_format.JsonFormatter"}
    return {"formatters": {"generic": own, "access": own}}


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object in one line."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "host": HOST,
            "pid": record.process,
            "thread": record.threadName,
            **current(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(line, default=str)  # ASCII: what is hidden is escaped
