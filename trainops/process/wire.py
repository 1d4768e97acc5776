"""A line of messages over a socket pair: each is a frozen dataclass of `protocol`, sent as JSON."""

import json
import math
import select
import socket
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar, cast, get_args

from pydantic import TypeAdapter

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
        classes: tuple[type[M], ...] = get_args(received) or (received,)
        self._classes: dict[str, type] = {each.__name__: each for each in classes}
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
            yield self._decoded(line)

    def has_input(self, seconds: float) -> bool:
        """Wait until something can be read, or the line is closed; False after these seconds.

        The number of the descriptor may be any: `select.select` knows only those below 1024.
        """
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        return bool(poll.poll(math.ceil(seconds * 1000)))

    def close(self) -> None:
        self._end.close()

    def _decoded(self, line: bytes) -> M:
        name, _, content = line.partition(b" ")
        found = self._classes.get(name.decode("ascii", "replace"))
        if found is None:
            allowed = ", ".join(self._classes)
            raise ValueError(f"got a message {name[:40]!r}; allowed: {allowed}")
        return cast(M, _adapter(found).validate_python(_storable(json.loads(content))))


def encoded(message: "DataclassInstance") -> bytes:
    """Return a message as one line: the name of its class, a space, and its fields as JSON."""
    content = json.dumps(_fields(message), separators=(",", ":"), default=_plain)
    return f"{type(message).__name__} {content}\n".encode()


def prepare(received: object) -> None:
    """Build the validators of these messages, which takes time, before a process is forked."""
    for each in get_args(received):
        _adapter(each)


@cache
def _adapter(message_class: type) -> TypeAdapter[object]:
    return TypeAdapter(message_class)


def _fields(value: "DataclassInstance") -> dict[str, object]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a message cannot hold a {type(value).__name__}")


def _storable(value: object) -> object:
    """Return the value with every text such that any database can store it.

    Lone surrogates (of odd file names) and NUL are replaced.
    """
    if isinstance(value, str):
        whole = value.encode("utf-8", "replace").decode()
        return whole.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if isinstance(value, list):
        return [_storable(each) for each in value]
    if isinstance(value, dict):
        return {_storable(key): _storable(each) for key, each in value.items()}
    return value
