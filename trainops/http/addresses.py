"""Which address a request comes from: for limits, throttles and logs."""

from collections.abc import Mapping

from django.conf import settings


def client_address(environ: Mapping[str, object]) -> str:
    """Return the address of the client, or of the proxy's client where there is one.

    Only the last entry of X-Forwarded-For is the proxy's own; a client can send the others.
    """
    connected = str(environ.get("REMOTE_ADDR", ""))
    if not settings.BEHIND_HTTPS_PROXY:
        return connected
    forwarded = str(environ.get("HTTP_X_FORWARDED_FOR", ""))
    return forwarded.rpartition(",")[2].strip() or connected
