"""The address at which other workers reach this one, for operations of several nodes."""

import ipaddress
import socket
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import connection

LOOPBACK = "127.0.0.1"


def own_address() -> str:
    """Return the configured address; by default that from which database or broker are reached.

    The first one that other machines can reach. Where both are on this machine, so are the other
    workers.
    """
    if settings.SERVING.node_address:
        return str(settings.SERVING.node_address)
    known = servers(connection.settings_dict, settings.BROKER_URL)
    found = [each for host, port in known if (each := _address_towards(host, port))]
    reachable = [each for each in found if not ipaddress.ip_address(each).is_loopback]
    return [*reachable, *found, LOOPBACK][0]


def _address_towards(host: str, port: int) -> str:
    """Return the own address on the way to a server; empty: there is no way."""
    try:
        family, kind, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as end:
            end.connect(target)  # sends nothing: the kernel chooses the route
            return str(end.getsockname()[0])
    except OSError:
        return ""


def servers(database: Mapping[str, Any], broker_url: str) -> Iterator[tuple[str, int]]:
    """Yield host and port of database and broker, where these are network addresses."""
    if (host := database.get("HOST") or "") and not host.startswith("/"):
        yield host, int(database.get("PORT") or 5432)
    broker = urlsplit(broker_url)
    if broker.scheme in ("redis", "rediss") and broker.hostname:
        yield broker.hostname, broker.port or 6379
