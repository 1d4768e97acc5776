"""The response of a WSGI application, block by block: no thread waits until a client has read."""

from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Any

from trainops.gateway.asgi import ResponsePart, ResponseStart
from trainops.gateway.environ import Environ

Application = Callable[..., Iterable[bytes]]
BLOCK_BYTES = 64 * 1024


class GatewayResponse:
    """What the application answers to one request; used by one thread at a time."""

    def __init__(self, application: Application, environ: Environ) -> None:
        self.status = HTTPStatus.INTERNAL_SERVER_ERROR.value
        self.headers: list[tuple[bytes, bytes]] = []
        self._parts: Iterable[bytes] = application(environ, self._start)
        self._chunks: Iterator[bytes] = iter(self._parts)
        self._rest = memoryview(b"")
        self.is_complete = False

    def _start(self, status: str, headers: list[tuple[str, str]], *_: Any) -> None:
        self.status = int(status.partition(" ")[0])
        self.headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers
        ]

    def start(self) -> ResponseStart:
        """Return the message that begins it. One block at least must have been taken."""
        return {"type": "http.response.start", "status": self.status, "headers": self.headers}

    def message(self, block: bytes) -> ResponsePart:
        """Return the message that carries the newest block."""
        return {"type": "http.response.body", "body": block, "more_body": not self.is_complete}

    def block(self) -> bytes:
        """Return the next BLOCK_BYTES; fewer only at the end, when `is_complete` is set."""
        pieces: list[memoryview] = []
        missing = BLOCK_BYTES
        while missing and not self.is_complete:
            if not self._rest:
                self._take_chunk()
            pieces.append(self._rest[:missing])
            self._rest = self._rest[missing:]
            missing -= len(pieces[-1])
        return b"".join(pieces)

    def _take_chunk(self) -> None:
        try:
            self._rest = memoryview(next(self._chunks))
        except StopIteration:
            self.close()

    def close(self) -> None:
        self.is_complete = True
        if close := getattr(self._parts, "close", None):
            close()
