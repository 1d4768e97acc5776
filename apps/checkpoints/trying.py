"""Calls over the network to a storage: again where that helps, and one kind of error where not."""

import errno
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from trainops import backoff

T = TypeVar("T")
TOO_MANY, TIMEOUT, SERVER_ERROR = 429, 408, 500  # statuses that may be another a moment later
# The libraries of three storages, and urllib3 and requests below them, tell a line that was cut or
# slow by classes of these names; to import them all would cost everyone who uses none.
PASSING = frozenset({
    "ConnectionError", "HTTPClientError", "IncompleteReadError", "ProtocolError",
    "RetriesExceededError", "ServiceRequestError", "ServiceResponseError", "Timeout",
    "TimeoutError", "TransportError",
})  # fmt: skip


class StorageFailed(OSError):
    """The storage does not answer, or refuses; that says nothing about the bytes it holds."""

    def __init__(self, problem: str) -> None:
        super().__init__(errno.EIO, problem)

    def __str__(self) -> str:
        return str(self.strerror)


class OtherKey(StorageFailed):
    """The storage has the object, encrypted with a key that this process does not have."""


class Missing(Exception):
    """The storage answers, and does not have the object."""


class TooLarge(Exception):
    """The object is larger than what belongs in its place."""

    def __init__(self, name: str, size_bytes: int, max_bytes: int) -> None:
        super().__init__(f"{name} has {size_bytes:,} bytes; allowed: {max_bytes:,}")


class NobodyWaits(Exception):
    """The caller no longer waits for it."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a call is tried, and the pauses between."""

    tries: int
    first_seconds: float = 1.0
    longest_seconds: float = 60.0

    def pause(self, number: int) -> float:
        """Return the seconds to wait after the try of this number, the first being 1."""
        return backoff.seconds(
            number, first=self.first_seconds, longest=self.longest_seconds, jitter=0.3
        )


def retried(call: Callable[[], T], policy: RetryPolicy, stop: threading.Event) -> T:
    """Return what `call` returns, made again where what went wrong may pass.

    Raises:
        StorageFailed: it went wrong for good, or too often.
        Missing: there is no such object.
        TooLarge: it is larger than allowed.
        NobodyWaits: `stop` was set.
    """
    for number in range(1, policy.tries + 1):
        if stop.is_set():
            raise NobodyWaits
        try:
            return call()
        except (Missing, NobodyWaits, StorageFailed, TooLarge):
            raise
        except Exception as error:
            if number == policy.tries or not passes(error):
                raise StorageFailed(explained(error)) from error
        stop.wait(policy.pause(number))
    raise NobodyWaits


def passes(error: BaseException) -> bool:
    """Whether the same call may go through later: not after a refusal."""
    status = status_of(error)
    if status is not None:
        return status >= SERVER_ERROR or status in (TOO_MANY, TIMEOUT)
    return any(kind.__name__ in PASSING for kind in type(error).__mro__)


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status that an error of boto3, Google's or Azure's library stands for."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        status = getattr(error, "status_code", None) or getattr(error, "code", None)
    return status if isinstance(status, int) else None


def explained(error: BaseException) -> str:
    """Return one line for a person."""
    response = getattr(error, "response", None)
    if isinstance(response, dict) and (details := response.get("Error")):
        return f"{details.get('Code', 'error')}: {details.get('Message') or error}"
    return " ".join(f"{type(error).__name__}: {error}".split())
