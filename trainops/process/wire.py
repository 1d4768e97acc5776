"""A line of messages over a socket pair; see `trainops.messages`."""

import math
import select
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from trainops.messages import MessageReader, encoded

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAX_MESSAGE_BYTES = 64 * 1024**2

M = TypeVar("M")  # the messages that this end receives


class Hangup(Exception):
    """The other side has closed its end, or died."""


class Wire(Generic[M]):
    """One end of the line. One thread sends and one receives at a time.

    received: the message class that this end accepts, or a union of them; their names are sent.
    max_bytes: the longest message that it accepts. A child accepts any message of its supervisor,
        which may send a long ledger.
    """

    def __init__(
        self,
        end: socket.socket,
        received: object,
        max_bytes: float = MAX_MESSAGE_BYTES,
    ) -> None:
        self._end, self._max_bytes = end, max_bytes
        self._reader = MessageReader[M](received)
        self._pieces: list[bytes] = []  # of a line that has not ended
        self._num_bytes = 0

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, message: "DataclassInstance") -> None:
        """Send one message; blocks while the other side's buffer is full. Raises Hangup."""
        try:
            self._end.sendall(encoded(message))
        except OSError as error:
            raise Hangup from error

    def read(self) -> Iterator[M]:
        """Yield the messages that one read from the socket completed.

        Raises:
            Hangup: the other side has closed its end.
            ValueError: a line is not one of the messages that this end accepts.
        """
        try:
            some = self._end.recv(1 << 16)
        except OSError as error:
            raise Hangup from error
        if not some:
            raise Hangup
        *lines, rest = some.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._pieces, lines[0]])
            self._pieces, self._num_bytes = [], 0
        self._pieces.append(rest)
        self._num_bytes += len(rest)
        if self._num_bytes > self._max_bytes:
            raise Hangup(f"a message of more than {self._max_bytes} bytes")
        for line in lines:
            yield self._reader.read(line)

    def has_input(self, seconds: float) -> bool:
        """Wait until something can be read, or the line is closed; False after these seconds.

        The number of the descriptor may be any: `select.select` knows only those below 1024.
        """
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        return bool(poll.poll(math.ceil(seconds * 1000)))

    def close(self) -> None:
        self._end.close()
