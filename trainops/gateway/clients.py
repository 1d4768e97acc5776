"""What one address, and one person, may use of the server at a time: never all of it."""

import asyncio
import ipaddress
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass


class TooManyRequests(Exception):
    """The address or the person has as many requests in progress as one may have."""


class PasswordWaitOver(Exception):
    """Too many passwords were being checked for the whole time that a request may wait."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """How many requests of one address, or of one person, may do what at a time."""

    threads: int = 4
    streams: int = 4  # uploads, each of which holds a thread of its own kind
    requests: int = 256  # in progress, whatever they do
    bodies: int = 128  # whose bodies arrive
    large_bodies: int = 16  # of these, collected on disk
    passwords: int = 2  # being checked, or next in the queue for it


class ClientRequests:
    def __init__(self, limits: ClientLimits) -> None:
        self._counts = dict.fromkeys(("requests", "bodies", "large_bodies"), 0)
        self._limits = limits
        self.threads = asyncio.Semaphore(limits.threads)
        self.streams = asyncio.Semaphore(limits.streams)
        self.passwords = asyncio.Semaphore(limits.passwords)

    @contextmanager
    def counted(self, what: str) -> Iterator[None]:
        """Count one more in progress. Raises TooManyRequests."""
        if self._counts[what] >= getattr(self._limits, what):
            raise TooManyRequests(what)
        self._counts[what] += 1
        try:
            yield
        finally:
            self._counts[what] -= 1

    @property
    def is_idle(self) -> bool:
        return not self._counts["requests"]


class Clients:
    """Addresses, or people, with a request in progress; used by the event loop alone."""

    def __init__(self, limits: ClientLimits) -> None:
        self._limits = limits
        self._clients: dict[str, ClientRequests] = {}

    @asynccontextmanager
    async def visit(self, key: str) -> AsyncIterator[ClientRequests]:
        """Count a request of this key from its headers to the end of its response.

        Raises TooManyRequests.
        """
        client = self._clients.setdefault(key, ClientRequests(self._limits))
        try:
            with client.counted("requests"):
                yield client
        finally:
            if client.is_idle:
                self._clients.pop(key, None)


@dataclass(frozen=True, slots=True)
class Proof:
    """What the application found out: this credential, a token or a session, is of this person."""

    credential: str
    person: str


class Proofs:
    """Those of lately; the oldest are forgotten."""

    def __init__(self, max_known: int = 10_000) -> None:
        self._people: OrderedDict[str, str] = OrderedDict()
        self._max_known = max_known

    def people(self, credentials: Iterable[str]) -> list[str]:
        """Return whose these credentials are, as far as that is known."""
        return sorted({self._people[each] for each in credentials if each in self._people})

    def remember(self, proof: Proof) -> None:
        self._people[proof.credential] = proof.person
        self._people.move_to_end(proof.credential)
        if len(self._people) > self._max_known:
            self._people.popitem(last=False)


def network_of(address: str) -> str:
    """Return the address; of IPv6 its /64, which is what one customer gets."""
    try:
        if (parsed := ipaddress.ip_address(address)).version == 6:
            return str(ipaddress.ip_network((parsed, 64), strict=False))
    except ValueError:
        pass
    return address
