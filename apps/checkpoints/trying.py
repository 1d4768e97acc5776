"""Calls over the network to a storage: again where that helps, and one kind of error where not."""

import errno
import math
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

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


class Missing(Exception):
    """The storage answers, and does not have the object."""


class NobodyWaits(Exception):
    """Whoever wanted it does not wait any more."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a call is made, and the pauses between: doubling, each of them drawn."""

    tries: int
    first_seconds: float = 1.0
    longest_seconds: float = 60.0

    def pause(self, number: int) -> float:
        """Return the seconds to wait after the try of this number, the first being 1."""
        longest = min(self.first_seconds * math.pow(2.0, number - 1), self.longest_seconds)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - jitter: many do not return at once


def patiently(call: Callable[[], T], patience: Patience, stop: threading.Event) -> T:
    """Return what `call` returns, made again where what went wrong may pass.

    Raises:
        StorageFailed: it went wrong for good, or too often.
        Missing: there is no such object.
        NobodyWaits: `stop` was set.
    """
    for number in range(1, patience.tries + 1):
        if stop.is_set():
            raise NobodyWaits
        try:
            return call()
        except (Missing, NobodyWaits, StorageFailed):
            raise
        except Exception as error:
            if number == patience.tries or not passes(error):
                raise StorageFailed(explained(error)) from error
        stop.wait(patience.pause(number))
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
    if isinstance(response, dict) and (told := response.get("Error")):
        return f"{told.get('Code', 'error')}: {told.get('Message') or error}"
    return " ".join(f"{type(error).__name__}: {error}".split())
