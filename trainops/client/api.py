"""The HTTP API: data out of the envelope, or a problem with an exit code."""

import copy
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPMessage
from pathlib import Path
from typing import IO, Any, Generic, Self, TypeAlias, TypedDict, TypeVar, Unpack
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from trainops.client.http import Body, NotReached, Response, Transport, multipart
from trainops.client.problems import ExitCode, Problem, Refused, Unreachable
from trainops.client.responses import Error
from trainops.client.server import ServerAddress
from trainops.paths import COMMAND
from trainops.version import VERSION

PREFIX = "/api/v1/"
VERSION_HEADER = "Trainops-Version"
PART_TYPE = "application/offset+octet-stream"
EXIT_CODES = {404: ExitCode.NOT_FOUND, 409: ExitCode.CONFLICT}
USAGE_STATUSES = frozenset({400, 405, 413, 415, 422})
BUSY = frozenset({429, 503})
MAX_TRIES = 4
MIN_READ_SECONDS = 1.0
LOST_SECONDS = 1.0  # before a request whose response was lost is sent again
MAX_WAIT_SECONDS = 30.0  # that a response may ask to wait; a longer wait is raised as a failure

Row = TypeVar("Row")
Param: TypeAlias = str | int | float | None  # None is left out


@dataclass(frozen=True, slots=True)
class RowPage(Generic[Row]):
    """One page of a list; `has_more` says whether it is the last."""

    rows: list[Row]
    has_more: bool = False
    total_count: int | None = None


class Envelope(TypedDict, total=False):
    """The body of a success; of a response without a body nothing."""

    data: Any
    next: str | None  # of a list: the address of its next page
    total_count: int | None


class SentContent(TypedDict, total=False):
    """What a request sends besides its address."""

    body: Body
    headers: dict[str, str]
    read_seconds: float | None  # None: the response may take any time


class Api:
    """Communicates with one server. Every method raises Refused, Unreachable or Problem.

    The content of a response is JSON from outside; callers name its type (`responses.py`).
    Requests that may be repeated are, where the connection breaks or the server asks to wait.
    """

    def __init__(
        self, server: ServerAddress, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.server = server
        self.server_version: str | None = None  # known after the first response
        self._sleep = sleep
        self._until = math.inf
        headers = {"Accept": "application/json", "User-Agent": f"trainops-client/{VERSION}"}
        if server.token:
            headers["Authorization"] = f"Bearer {server.token}"
        # A proxy knows nothing of this machine.
        self._http = Transport(server.url + PREFIX, headers, uses_proxy=not server.is_local)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def until(self, moment: float) -> Self:
        """Return this API with a time limit on the monotonic clock for responses.

        A request that begins at the limit, or after it, has MIN_READ_SECONDS.
        """
        limited = copy.copy(self)
        limited._until = moment
        return limited

    def get(self, path: str, **params: Param) -> Any:
        return self._call("GET", path, params)["data"]

    def rows(self, path: str, **params: Param) -> RowPage[Any]:
        body = self._call("GET", path, params)
        if not isinstance(body["data"], list):
            raise Problem(f"The server at {self.server.url} returned no list ({path}).")
        return RowPage(body["data"], bool(body.get("next")), body.get("total_count"))

    def every(self, path: str, **params: Param) -> Iterator[Any]:
        """Yield the rows of all pages of a list."""
        while True:
            body = self._call("GET", path, params)
            yield from body["data"]
            if not (address := body.get("next")):
                return
            params["cursor"] = parse_qs(urlsplit(address).query)["cursor"][0]

    def post(self, path: str, body: object = None) -> Any:
        return self._call("POST", path, {}, **_json({} if body is None else body))["data"]

    def submit(self, path: str, body: object, *, key: str = "") -> Any:
        """Post what the server does once for each key, though it is sent again."""
        sent = _json(body)
        sent["headers"]["Idempotency-Key"] = key or str(uuid4())
        return self._call("POST", path, {}, may_repeat=True, **sent)["data"]

    def patch(self, path: str, body: object) -> Any:
        return self._call("PATCH", path, {}, **_json(body))["data"]

    def post_and_wait(self, path: str, body: object = None) -> Any:
        """Post what keeps the server busy for as long as reading all the data takes."""
        sent = _json({} if body is None else body)
        sent["read_seconds"] = None
        return self._call("POST", path, {}, **sent)["data"]

    def upload(self, path: str, file: IO[bytes], filename: str, fields: dict[str, str]) -> Any:
        body, headers = multipart(fields, filename, file.read, os.fstat(file.fileno()).st_size)
        return self._call("POST", path, {}, body=body, headers=headers)["data"]

    def upload_and_wait(
        self, path: str, file: IO[bytes], filename: str, fields: dict[str, str]
    ) -> tuple[Any, bool]:
        """Upload what takes the server long; return its answer, and whether that is new."""
        body, headers = multipart(fields, filename, file.read, os.fstat(file.fileno()).st_size)
        with self._connected():
            response = self._http.request(
                "POST", path, {}, body=body, headers=headers, read_seconds=None
            )
        return self._opened(response)["data"], response.status == HTTPStatus.CREATED

    def send_part(self, path: str, offset: int, part: bytes) -> int:
        """Append a part to an upload; return the number of bytes that the server has then."""
        headers = {"Content-Type": PART_TYPE, "Upload-Offset": str(offset)}
        with self._connected():
            response = self._http.request("PATCH", path, {}, body=part, headers=headers)
        self._opened(response)
        return int(response.headers["Upload-Offset"])

    def download(self, path: str, target: Path, **params: Param) -> HTTPMessage:
        """Write what the address answers with as `target`; return its headers. Raises OSError."""
        draft = target.with_name(f".{target.name}.draft")
        try:
            with draft.open("wb") as file:
                headers = self.read(path, file.write, **params)
            draft.rename(target)
        finally:
            draft.unlink(missing_ok=True)
        return headers

    def read(self, path: str, write: Callable[[bytes], object], **params: Param) -> HTTPMessage:
        """Pass the content of an address that is no envelope on as it comes; return its headers."""
        any_type = {"Accept": "*/*"}
        with (
            self._connected(),
            self._http.stream("GET", path, params, headers=any_type) as (response, chunks),
        ):
            if not response.is_success or "json" in response.headers.get("Content-Type", ""):
                whole = Response(response.status, response.headers, b"".join(chunks))
                self._opened(whole)  # raises what it says
                return whole.headers
            for chunk in chunks:
                write(chunk)
            return response.headers

    def delete(self, path: str) -> Any:
        return self._call("DELETE", path, {}).get("data")

    def _call(
        self,
        method: str,
        path: str,
        params: Mapping[str, object],
        *,
        may_repeat: bool = False,
        **content: Unpack[SentContent],
    ) -> Envelope:
        may_repeat = may_repeat or method == "GET"
        if self._until < math.inf:
            content["read_seconds"] = max(self._seconds_left(), MIN_READ_SECONDS)
        rest = MAX_TRIES if may_repeat else 1
        while True:
            rest -= 1
            try:
                with self._connected():
                    response = self._http.request(method, path, params, **content)
            except Unreachable as problem:
                wait = LOST_SECONDS
                if not (rest and problem.was_sent) or wait > self._seconds_left():
                    raise
            else:
                asked = _seconds_to_wait(response)
                if not rest or asked is None or asked > self._seconds_left():
                    return self._opened(response)
                wait = asked
            self._sleep(wait)

    def _seconds_left(self) -> float:
        return self._until - time.monotonic()

    @contextmanager
    def _connected(self) -> Iterator[None]:
        try:
            yield
        except NotReached as error:
            raise _unreachable(self.server, error) from error
        except ValueError as error:  # of the URL: also UnicodeError, InvalidURL
            raise Problem(f"{self.server.url}: {error}", ExitCode.USAGE) from error

    def _opened(self, response: Response) -> Envelope:
        """Return the envelope of a success."""
        self.server_version = response.headers.get(VERSION_HEADER)
        if response.status == HTTPStatus.NO_CONTENT:
            return {}
        try:
            body: Any = json.loads(response.body)
        except (ValueError, RecursionError):
            body = None
        match body:
            case {"success": True, "data": _}:
                envelope: Envelope = body
                return envelope
            case {"success": False, "error": {"code": str(), "message": str()} as error}:
                raise _refusal(response.status, error, self._versions())
            case _:
                raise _stranger(self.server, response, self._versions())

    def _versions(self) -> tuple[str, ...]:
        """Return a sentence if the server has another version than this client."""
        found = difference_of(self.server_version)
        return (found,) if found else ()


# Statuses of a proxy whose server is away, be it for a moment.
AWAY = frozenset(
    {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
)


def difference_of(server_version: str | None) -> str:
    """Return which of client and server is older and what to do; empty if they agree."""
    if server_version is None or server_version == VERSION:
        return ""
    try:
        is_older = _numbers(VERSION) < _numbers(server_version)
    except ValueError:
        return f"The client is trainops {VERSION}, the server {server_version!r}."
    if is_older:
        return (
            f"The client (trainops {VERSION}) is older than the server ({server_version}): "
            f"update the client."
        )
    return (
        f"The client (trainops {VERSION}) is newer than the server ({server_version}): it may "
        f"ask for what the server does not have yet."
    )


def _numbers(version: str) -> list[int]:
    return [int(each) for each in version.split(".")[:3]]


def json_of(body: object) -> str:
    """Return a body as JSON. Raises Problem: JSON has no such number."""
    for path, number in _not_finite(body):
        raise Problem(f"{path}: got {number}; allowed: a finite number", ExitCode.USAGE)
    return json.dumps(body, ensure_ascii=False, allow_nan=False)


def _not_finite(value: object, path: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers that are NaN or infinite, with their dotted paths."""
    if isinstance(value, float) and not math.isfinite(value):
        yield path or "the body", value
    pairs: Iterable[tuple[object, object]] = ()
    if isinstance(value, Mapping):
        pairs = value.items()
    elif isinstance(value, list | tuple):
        pairs = enumerate(value)
    for name, each in pairs:
        yield from _not_finite(each, f"{path}.{name}" if path else f"{name}")


def _json(body: object) -> SentContent:
    return {"body": json_of(body).encode(), "headers": {"Content-Type": "application/json"}}


def _seconds_to_wait(response: Response) -> float | None:
    """Return for how long a busy server asks to wait; None if it does not, or for too long."""
    if response.status not in BUSY:
        return None
    try:
        wait = float(response.headers.get("Retry-After", ""))
    except ValueError:
        return None
    return wait if 0 <= wait <= MAX_WAIT_SECONDS else None


def _refusal(status: int, error: Error, versions: tuple[str, ...]) -> Refused:
    exit_code = EXIT_CODES.get(status)
    if exit_code is None:
        exit_code = ExitCode.USAGE if status in USAGE_STATUSES else ExitCode.FAILED
    details = error.get("details") or {}
    hints = [f"Possible reason: {reason}" for reason in details.get("possible_reasons", [])]
    if status == HTTPStatus.UNAUTHORIZED:
        hints.append(f"Sign in with: {COMMAND} login   (or set TRAINOPS_TOKEN)")
    return Refused(
        error["code"], error["message"], exit_code,
        fields=details.get("fields"), hints=(*hints, *versions),
    )  # fmt: skip


def _unreachable(server: ServerAddress, error: NotReached) -> Unreachable:
    if error.was_sent:
        text = f"{server.url}: {error}. The server may have done what was asked."
        return Unreachable(text, was_sent=True)
    hints = ["If it runs elsewhere, set --url http://HOST:PORT or TRAINOPS_URL."]
    if server.is_local:
        hints.insert(0, f"Start it with: {COMMAND} up")
    return Unreachable(f"No server at {server.url} ({error}).", hints=tuple(hints))


def _stranger(server: ServerAddress, response: Response, versions: tuple[str, ...]) -> Problem:
    """Return what to say of a response without an envelope; of a proxy's, Unreachable."""
    if response.status // 100 == 3:
        target = response.headers.get("Location", "elsewhere")
        return Problem(f"{server.url} redirects to {target}; set that address with --url.")
    kind = response.headers.get("Content-Type", "no content type")
    text = f"The server at {server.url} is not a trainops server"
    if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        text = "The server, or a proxy in front of it, returned an error"
    if wait := response.headers.get("Retry-After"):
        versions = (f"It asks to wait for {wait} s.", *versions)
    message = f"{text} (HTTP {response.status}, {kind})."
    if response.status in AWAY:
        return Unreachable(message, hints=versions, was_sent=True)
    return Problem(message, hints=versions)
