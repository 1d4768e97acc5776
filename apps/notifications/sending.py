"""One signed POST to a webhook."""

import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

import httpcore
from django.conf import settings

from trainops.http.connections import AddressRefused, CheckedBackend, Deadline, Reachable
from trainops.notification_settings import NETWORKS

TIMEOUT_SECONDS = 10.0  # for all of a request


class NotSent(Exception):
    """The notification could not be sent, or nothing answered."""


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return the hexadecimal HMAC-SHA256 of `timestamp.body`."""
    return hmac.new(
        bytes.fromhex(secret), timestamp.encode() + b"." + body, hashlib.sha256
    ).hexdigest()


def post(url: str, body: bytes, headers: Mapping[str, str]) -> int:
    """Send the body; return the status of the response.

    Redirects are not followed, and the body of the response is not read. Raises NotSent.
    """
    own = [("Host", urlsplit(url).netloc), ("Content-Type", "application/json")]
    all_headers = [*headers.items(), *own]
    reachable = Reachable(settings.WEBHOOK_PRIVATE_ADDRESSES, NETWORKS)
    backend = CheckedBackend(Deadline(TIMEOUT_SECONDS), reachable)
    try:
        with (
            httpcore.ConnectionPool(network_backend=backend) as pool,
            pool.stream("POST", url, content=body, headers=all_headers) as response,
        ):
            return response.status
    except AddressRefused as error:
        raise NotSent(str(error)) from error
    except (
        httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError,
        httpcore.UnsupportedProtocol, OSError, ValueError,
    ) as error:  # fmt: skip
        raise NotSent(f"{type(error).__name__}: {error}") from error
