"""The messages between a supervisor and its child: one JSON object a line, over a socket pair.

supervisor → child: start, grant, stop, salvage, committed, refused, not_stored, written, out,
                    returned
child → supervisor: restored, corrupted, progress, spending, staged, save_failed, salvaging,
                    salvaged, delegate, drop, self_check, ended

The order on the wire is the order of things: whatever was sent before `staged` is durable before
the checkpoint is. What is spent of anybody's privacy is durable before it is released.
"""

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

MAX_MESSAGE_BYTES = 64 * 1024**2  # a child that says more in one line is not to be believed

Message = dict[str, Any]


def now() -> float:
    """Seconds on the clock of deadlines: it goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Hangup(Exception):
    """The other side has closed its end, or died."""


class Wire:
    """One end of the line. One thread sends and one receives at a time.

    `max_bytes` is the longest message that it takes; a child takes any of its supervisor, which may
    tell of a long ledger.
    """

    def __init__(self, end: socket.socket, max_bytes: float = MAX_MESSAGE_BYTES) -> None:
        self._end, self._max_bytes = end, max_bytes
        self._received: list[bytes] = []  # pieces of a line that has not ended
        self._num_received = 0

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, kind: str, **fields: Any) -> None:
        """Send one message; blocks while the other side's buffer is full.

        Raises:
            Hangup: nobody is there to hear it.
        """
        line = json.dumps({"kind": kind, **fields}, separators=(",", ":")).encode() + b"\n"
        try:
            self._end.sendall(line)
        except OSError as error:
            raise Hangup from error

    def read(self) -> Iterator[Message]:
        """Yield the messages that one read from the socket completed.

        Raises:
            Hangup: at the end of the line.
        """
        try:
            some = self._end.recv(1 << 16)
        except OSError as error:
            raise Hangup from error
        if not some:
            raise Hangup
        *lines, rest = some.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._received, lines[0]])
            self._received, self._num_received = [], 0
        self._received.append(rest)
        self._num_received += len(rest)
        if self._num_received > self._max_bytes:
            raise Hangup(f"a message of more than {self._max_bytes} bytes")
        for line in lines:
            yield json.loads(line)

    def close(self) -> None:
        self._end.close()
