"""The body of a request: collected before it gets a thread, or streamed into one.

Both end with `TooSlow` where the client sends less than a minimum rate, and with `BodyTooLarge`
where it sends more than was allowed.
"""

import asyncio
import io
import tempfile
import time
from collections.abc import Callable
from typing import IO, Any

from trainops.gateway.asgi import Receive

IN_MEMORY_BYTES = 64 * 1024
PAUSE_SECONDS = 10.0  # the longest wait for the next bytes
START_SECONDS = 20.0  # besides the time that the minimum rate grants
MINIMUM_BYTES_PER_SECOND = 16 * 1024


class TooSlow(OSError):
    """The client sends its body at less than the minimum rate."""


class BodyTooLarge(OSError):
    """The body is larger than the sender may send to this address."""

    def __init__(self, allowed_bytes: int) -> None:
        super().__init__(f"The body is larger than {allowed_bytes} bytes.")
        self.allowed_bytes = allowed_bytes


class NotSignedIn(OSError):
    """The body is larger than a request without a valid token or session may have."""

    def __init__(self, allowed_bytes: int) -> None:
        super().__init__(
            f"Without a valid token or session, a body is limited to {allowed_bytes} bytes."
        )
        self.allowed_bytes = allowed_bytes


class NoSpace(OSError):
    """The disk has too little room for this upload and what is made of it."""


class LengthRequired(OSError):
    """An upload is too large to be collected, so its Content-Length must be known."""


class Disconnected(OSError):
    """The client closed the connection before its body was complete."""


class BodyChunks:
    """The chunks of one body, each awaited within the deadlines."""

    def __init__(self, receive: Receive, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._receive, self._clock, self._began_at = receive, clock, clock()
        self.num_bytes, self.is_complete = 0, False

    async def chunk(self) -> bytes:
        """Return the next bytes; b"" at the end. Raises TooSlow, Disconnected."""
        while not self.is_complete:
            try:
                message = await asyncio.wait_for(self._receive(), self._seconds_left())
            except TimeoutError:
                raise TooSlow("The body arrives too slowly.") from None
            if message["type"] != "http.request":
                raise Disconnected("The client closed the connection.")
            self.is_complete = not message.get("more_body", False)
            if body := message.get("body", b""):
                self.num_bytes += len(body)
                return bytes(body)
        return b""

    async def disconnected(self) -> None:
        """Return when the client has closed the connection. The body must be complete."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def _seconds_left(self) -> float:
        granted = START_SECONDS + self.num_bytes / MINIMUM_BYTES_PER_SECOND
        return max(0.0, min(PAUSE_SECONDS, self._began_at + granted - self._clock()))


async def collect(source: BodyChunks, allowed_bytes: int, into: IO[bytes]) -> None:
    """Read the source to its end. Raises BodyTooLarge as soon as more than `allowed_bytes` came."""
    while chunk := await source.chunk():
        if source.num_bytes > allowed_bytes:
            raise BodyTooLarge(allowed_bytes)
        into.write(chunk)


def new_buffer() -> IO[bytes]:
    """Return a file for a body: in memory while it is small, else on disk and without a name."""
    return tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)


class BodyStream(io.RawIOBase):
    """A body that a thread reads while the event loop receives it."""

    def __init__(self, source: BodyChunks, allowed_bytes: int) -> None:
        self._source, self._rest, self._allowed_bytes = source, b"", allowed_bytes
        self._loop = asyncio.get_running_loop()
        self.error: OSError | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = self._next()
        given, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(given)] = given
        return len(given)

    def _next(self) -> bytes:
        try:
            chunk = asyncio.run_coroutine_threadsafe(self._source.chunk(), self._loop).result()
            if self._source.num_bytes > self._allowed_bytes:
                raise BodyTooLarge(self._allowed_bytes)
            return chunk
        except OSError as error:
            self.error = error
            raise
