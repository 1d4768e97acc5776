"""HTTP to one server by the standard library: libraries cost four times its time to import."""

import base64
import http.client
import os
import select
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlencode, urlsplit

CONNECT_SECONDS = 5.0
READ_SECONDS = 600.0  # to verify a large checkpoint keeps the server busy for a while
CHUNK_BYTES = 1024**2
Body = bytes | Iterable[bytes]


class NotReached(Exception):
    """No response, or only a part of one. `was_sent`: the server may have done what was asked."""

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent


@dataclass(frozen=True, slots=True)
class Response:
    """A response that was read whole."""

    status: int
    headers: "http.client.HTTPMessage"  # by names in any case
    body: bytes = b""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


@dataclass(slots=True)
class Transport:
    """Requests to one address; several threads may send them. Connections are kept between them.

    Raises ValueError: the URL, or that of its proxy, cannot be used.
    """

    url: str
    headers: Mapping[str, str]
    uses_proxy: bool = True
    _idle: "list[http.client.HTTPConnection]" = field(default_factory=list)

    def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, object],
        body: Body | None = None,
        headers: Mapping[str, str] | None = None,
        read_seconds: float | None = READ_SECONDS,
    ) -> Response:
        """Return the response. Raises NotReached."""
        with self.stream(method, path, params, body, headers, read_seconds) as (opened, chunks):
            return Response(opened.status, opened.headers, b"".join(chunks))

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        params: Mapping[str, object],
        body: Body | None = None,
        headers: Mapping[str, str] | None = None,
        read_seconds: float | None = READ_SECONDS,
    ) -> Iterator[tuple[Response, Iterator[bytes]]]:
        """Open a response; its body is read in chunks. Raises NotReached, also while reading."""
        connection = self._connection(min(CONNECT_SECONDS, read_seconds or CONNECT_SECONDS))
        is_kept = False
        try:
            if connection.sock is not None:
                connection.sock.settimeout(read_seconds)
            relay, target = self._relay(), self._target(path, params)
            with _reached(was_sent=True):
                sent = {**self.headers, **(headers or {}), **(_of_proxy(relay) if relay else {})}
                connection.request(method, target, body=body, headers=sent)
                answer = connection.getresponse()
            found = Response(answer.status, answer.headers)
            yield found, _chunks(answer)
            is_kept = answer.isclosed() and not answer.will_close
        finally:
            if is_kept:
                self._idle.append(connection)
            else:
                connection.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def __del__(self) -> None:
        """Close the connections of a client that was not closed, as in a notebook."""
        self.close()

    def _connection(self, seconds: float = CONNECT_SECONDS) -> "http.client.HTTPConnection":
        while self._idle:
            kept = self._idle.pop()
            if _is_open(kept):
                return kept
            kept.close()
        made = _made(self.url, self._proxy(), seconds)
        with _reached(was_sent=False):
            made.connect()
        return made

    def _proxy(self) -> str | None:
        """Return the URL of the proxy that the environment names for this server."""
        if not self.uses_proxy or not any(name.lower().endswith("_proxy") for name in os.environ):
            return None
        from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - seldom needed

        parts = urlsplit(self.url)
        if parts.hostname is None or proxy_bypass(parts.netloc.rpartition("@")[2]):
            return None
        found = getproxies()
        return found.get(parts.scheme) or found.get("all")

    def _target(self, path: str, params: Mapping[str, object]) -> str:
        target = urlsplit(self.url).path + quote(path, safe="/:@!$&'()*+,;=~")
        query = urlencode({name: value for name, value in params.items() if value is not None})
        target += f"?{query}" if query else ""
        return f"http://{urlsplit(self.url).netloc}{target}" if self._relay() else target

    def _relay(self) -> str | None:
        """Return the proxy that passes requests on; encrypted ones go through it as a tunnel."""
        return self._proxy() if urlsplit(self.url).scheme == "http" else None


def multipart(
    fields: Mapping[str, str], filename: str, content: Callable[[int], bytes], num_bytes: int
) -> tuple[Iterator[bytes], dict[str, str]]:
    """Return the body of a form with one file named `file`, and its headers.

    content: returns the next bytes of the file, at most as many as it is given.
    """
    boundary = os.urandom(16).hex()
    frame = f"--{boundary}\r\nContent-Disposition: form-data; name="
    before = "".join(f'{frame}"{_quoted(name)}"\r\n\r\n{text}\r\n' for name, text in fields.items())
    before += f'{frame}"file"; filename="{_quoted(filename)}"\r\n'
    before += "Content-Type: application/octet-stream\r\n\r\n"
    first, last = before.encode(), f"\r\n--{boundary}--\r\n".encode()

    def body() -> Iterator[bytes]:
        yield first
        while chunk := content(CHUNK_BYTES):
            yield chunk
        yield last

    length = str(len(first) + num_bytes + len(last))
    kind = f"multipart/form-data; boundary={boundary}"
    return body(), {"Content-Type": kind, "Content-Length": length}


def _quoted(name: str) -> str:
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def _made(url: str, proxy: str | None, seconds: float) -> "http.client.HTTPConnection":
    parts, through = urlsplit(url), urlsplit(proxy or url)
    if parts.hostname is None or through.hostname is None:
        raise ValueError(f"{proxy or url!r} names no host")
    host, port = through.hostname, through.port
    if parts.scheme == "https":
        context = ssl.create_default_context()
        made: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, port, timeout=seconds, context=context
        )
        if proxy:
            made.set_tunnel(parts.hostname, parts.port or 443, _of_proxy(proxy))
        return made
    return http.client.HTTPConnection(host, port, timeout=seconds)


def _of_proxy(proxy: str) -> dict[str, str]:
    """Return the headers that sign in at a proxy."""
    parts = urlsplit(proxy)
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return {"Proxy-Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def _is_open(connection: "http.client.HTTPConnection") -> bool:
    """Whether a kept connection has neither been closed nor sent unrequested bytes."""
    if connection.sock is None:
        return False
    with suppress(OSError, ValueError):
        poll = select.poll()
        poll.register(connection.sock, select.POLLIN)
        return not poll.poll(0)
    return False


def _chunks(answer: "http.client.HTTPResponse") -> Iterator[bytes]:
    with _reached(was_sent=True):
        while chunk := answer.read(CHUNK_BYTES):
            yield chunk
        if answer.length:  # http.client takes a short body that is read in parts for a whole one
            raise http.client.IncompleteRead(b"", answer.length)


@contextmanager
def _reached(*, was_sent: bool) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise NotReached("did not respond in time", was_sent=was_sent) from error
    except http.client.IncompleteRead as error:
        raise NotReached("the response was cut off", was_sent=was_sent) from error
    except (OSError, http.client.HTTPException) as error:
        reason = str(error) or type(error).__name__
        raise NotReached(reason, was_sent=was_sent) from error
