"""The address at which other workers reach this one, for operations of several nodes."""

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from django.conf import settings
from django.db import connection

LOOPBACK = "127.0.0.1"


def own_address() -> str:
    """Return the configured address; by default that from which database or broker are reached.

    Where both are on this machine, so are the other workers.
    """
    if settings.SERVING.node_address:
        return str(settings.SERVING.node_address)
    for host, port in _servers():
        try:
            family, kind, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as end:
                end.connect(target)  # sends nothing: the kernel chooses the route
                return str(end.getsockname()[0])
        except OSError:
            continue
    return LOOPBACK


def _servers() -> Iterator[tuple[str, int]]:
    database = connection.settings_dict
    if (host := str(database.get("HOST") or "")) and not host.startswith("/"):
        yield host, int(database.get("PORT") or 5432)
    broker = urlsplit(settings.BROKER_URL)
    if broker.scheme in ("redis", "rediss") and broker.hostname:
        yield broker.hostname, broker.port or 6379
