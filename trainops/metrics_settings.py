"""Who may read /metrics: settings that are read once at the start."""

import ipaddress
import os
from collections.abc import Mapping

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
TOKEN, NETWORKS = "TRAINOPS_METRICS_TOKEN", "TRAINOPS_METRICS_NETWORKS"
LOOPBACK = ("127.0.0.0/8", "::1/128")
LEAST_LENGTH = 16


def token(environment: Mapping[str, str] = os.environ) -> str:
    """Return the token of /metrics; empty: none. Raises ValueError for one that can be guessed."""
    given = environment.get(TOKEN, "").strip()
    if given and len(given) < LEAST_LENGTH:
        raise ValueError(f"{TOKEN} has {len(given)} characters; allowed: at least {LEAST_LENGTH}")
    return given


def networks(environment: Mapping[str, str] = os.environ) -> tuple[Network, ...]:
    """Return the networks that need no token: as given, else this machine where there is no token.

    Raises ValueError.
    """
    given = environment.get(NETWORKS, "").strip()
    names = given.split(",") if given else () if token(environment) else LOOPBACK
    try:
        return tuple(ipaddress.ip_network(each.strip()) for each in names)
    except ValueError as error:
        allowed = "networks such as 127.0.0.0/8,10.1.0.0/16"
        raise ValueError(f"{NETWORKS}: got {given!r}; allowed: {allowed}") from error
