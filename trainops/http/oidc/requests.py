"""Requests to the provider: checked addresses, one deadline, bounded answers, no redirects."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import httpcore

from trainops.http.connections import AddressRefused, CheckedBackend, Deadline, Reachable
from trainops.http.oidc.errors import ProviderProblem
from trainops.http.parsers import NotUsable, read_json
from trainops.oidc_settings import NETWORKS, Oidc, is_loopback

TIMEOUT_SECONDS = 10.0  # for one request, whole
MAX_BYTES = 2**20
MAX_REQUESTS = 4  # at once in this process: each holds a thread of the web server
SLOT_SECONDS = 3.0  # of the deadline, for which a request waits until others end
UNREACHABLE = "The sign-in provider cannot be reached. Try again in a moment."
NOT_ACCEPTED = "The answer of the sign-in provider cannot be accepted. The log has the reason."
_slots = threading.BoundedSemaphore(MAX_REQUESTS)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Mapping[str, Any]  # a JSON object; empty: it was none


def ask(
    oidc: Oidc,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> Answer:
    """Send a request to the provider and return its answer. Raises ProviderProblem."""
    require_secure(oidc, url)
    sent = {"Host": urlsplit(url).netloc, "Accept": "application/json", **(headers or {})}
    backend = CheckedBackend(Deadline(TIMEOUT_SECONDS), Reachable(oidc.networks, NETWORKS))
    with _slot():
        try:
            with (
                httpcore.ConnectionPool(network_backend=backend) as pool,
                pool.stream(method, url, headers=[*sent.items()], content=body) as response,
            ):
                return Answer(response.status, _object(url, response))
        except AddressRefused as error:
            raise ProviderProblem(UNREACHABLE, detail=str(error)) from error
        except (
            httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError,
            httpcore.UnsupportedProtocol, OSError, ValueError,
        ) as error:  # fmt: skip
            detail = f"{url}: {type(error).__name__}: {error}"
            raise ProviderProblem(UNREACHABLE, detail=detail) from error


def require_secure(oidc: Oidc, url: object) -> None:
    """Raise ProviderProblem unless an address is encrypted, or of this machine as the issuer is."""
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
    except ValueError:  # such as "https://[::1"
        parts = urlsplit("")
    may_be_plain = urlsplit(oidc.issuer).scheme == "http"
    is_plain = parts.scheme == "http" and may_be_plain and is_loopback(parts.hostname or "")
    if not parts.hostname or not (parts.scheme == "https" or is_plain):
        raise ProviderProblem(NOT_ACCEPTED, detail=f"got the address {url!r}; allowed: https")


def _object(url: str, response: httpcore.Response) -> Mapping[str, Any]:
    whole = bytearray()
    for chunk in response.iter_stream():
        whole += chunk
        if len(whole) > MAX_BYTES:
            detail = f"{url}: the answer is larger than {MAX_BYTES} bytes"
            raise ProviderProblem(NOT_ACCEPTED, detail=detail)
    try:
        found = read_json(bytes(whole))
    except NotUsable as problem:
        if response.status != HTTPStatus.OK:  # a page of HTML, which the status explains
            return {}
        detail = f"{url}: the answer {problem}"
        raise ProviderProblem(NOT_ACCEPTED, detail=detail) from problem
    return found if isinstance(found, dict) else {}


@contextmanager
def _slot() -> Iterator[None]:
    if not _slots.acquire(timeout=SLOT_SECONDS):
        message = "Too many sign-ins are waiting for the provider. Try again in a moment."
        raise ProviderProblem(message, detail=f"{MAX_REQUESTS} requests in progress", status=503)
    try:
        yield
    finally:
        _slots.release()
