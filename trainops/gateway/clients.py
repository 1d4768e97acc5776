"""What one client address may use of the server at a time, so that no client uses all of it."""

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass


class Busy(Exception):
    """The address has as many requests in progress as one may have."""


@dataclass(frozen=True, slots=True)
class Share:
    """How many requests of one address may do what at a time."""

    threads: int = 6
    streams: int = 4  # uploads, each of which holds a thread of its own kind
    requests: int = 256  # in progress, whatever they do
    bodies: int = 128  # whose bodies arrive
    large_bodies: int = 16  # of these, collected on disk


class Client:
    def __init__(self, share: Share) -> None:
        self._counts = dict.fromkeys(("requests", "bodies", "large_bodies"), 0)
        self._share = share
        self.threads = asyncio.Semaphore(share.threads)
        self.streams = asyncio.Semaphore(share.streams)

    @contextmanager
    def counted(self, what: str) -> Iterator[None]:
        """Count one more in progress. Raises Busy."""
        if self._counts[what] >= getattr(self._share, what):
            raise Busy(what)
        self._counts[what] += 1
        try:
            yield
        finally:
            self._counts[what] -= 1

    @property
    def is_idle(self) -> bool:
        return not self._counts["requests"]


class Clients:
    """Those who have a request in progress, by address; used by the event loop alone."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._clients: dict[str, Client] = {}

    @asynccontextmanager
    async def visit(self, address: str) -> AsyncIterator[Client]:
        """Count a request of this address from its headers to its response's end. Raises Busy."""
        key = network_of(address)
        client = self._clients.setdefault(key, Client(self._share))
        try:
            with client.counted("requests"):
                yield client
        finally:
            if client.is_idle:
                self._clients.pop(key, None)


def network_of(address: str) -> str:
    """Return the address; of IPv6 its /64, which is what one customer gets."""
    try:
        if (parsed := ipaddress.ip_address(address)).version == 6:
            return str(ipaddress.ip_network((parsed, 64), strict=False))
    except ValueError:
        pass
    return address
