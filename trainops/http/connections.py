"""Connections to other servers: checked addresses, and one deadline for all of a request.

For webhooks, whose addresses users choose, and the provider of sign-ins.
"""

import ipaddress
import socket
import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import httpcore

from trainops.networks import Network

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")  # contains IPv4 addresses, also private ones


class AddressRefused(Exception):
    """No address of the host may be connected to."""


@dataclass(frozen=True, slots=True)
class Reachable:
    """Networks that may be connected to besides public addresses, and the setting that says so."""

    networks: tuple[Network, ...]
    setting: str


class Deadline:
    """A moment; each wait of a request gets what is left until then."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self, error: type[Exception]) -> float:
        """Return the seconds left. Raises the error where there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise error(f"no complete response within {self.seconds:g} s")
        return left


class CheckedBackend(httpcore.NetworkBackend):
    """Connects to public addresses and to the networks that an administrator allows.

    The address that is checked is the one that is connected to: a name has no second lookup.
    """

    def __init__(self, deadline: Deadline, reachable: Reachable) -> None:
        self._deadline, self._reachable = deadline, reachable
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        address = allowed_address(host, port, self._reachable)
        left = self._deadline.left(httpcore.ConnectTimeout)
        return TimedStream(self._backend.connect_tcp(address, port, left), self._deadline)


class TimedStream(httpcore.NetworkStream):
    """A stream whose reads and writes end at the deadline, however slowly bytes arrive."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._stream, self._deadline = stream, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.left(httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadline.left(httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left = self._deadline.left(httpcore.ConnectTimeout)
        return TimedStream(
            self._stream.start_tls(ssl_context, server_hostname, left), self._deadline
        )

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def allowed_address(host: str, port: int, reachable: Reachable) -> str:
    """Return the first address of a host that may be connected to. Raises AddressRefused."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise AddressRefused(f"{host} cannot be resolved: {error}") from error
    addresses = [str(each[4][0]) for each in found]
    for address in addresses:
        if is_allowed(address, reachable):
            return address
    raise AddressRefused(
        f"{host} is {', '.join(sorted(set(addresses)))}; allowed: public addresses, and networks "
        f"in {reachable.setting}"
    )


def is_allowed(text: str, reachable: Reachable) -> bool:
    """Whether an address is public, or in a network that an administrator allows."""
    address: Address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    if any(address in network for network in reachable.networks):
        return True
    if isinstance(address, ipaddress.IPv6Address):
        is_unicast = address in GLOBAL_UNICAST and address not in SIX_TO_FOUR
        return is_unicast and address.is_global
    return address.is_global and not address.is_multicast
