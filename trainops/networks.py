"""Networks that an administrator names in the environment."""

import ipaddress
import os
from collections.abc import Mapping

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
EVERYWHERE = ("0.0.0.0/0", "::/0")


def allowed(variable: str, environment: Mapping[str, str] = os.environ) -> tuple[Network, ...]:
    """Return the networks that a variable names besides public addresses. Raises ValueError."""
    given = environment.get(variable, "").strip()
    if given in ("", "0"):
        return ()
    names = EVERYWHERE if given == "1" else given.split(",")
    try:
        return tuple(ipaddress.ip_network(each.strip()) for each in names)
    except ValueError as error:
        allowed = "0, 1 (all), or networks such as 10.1.0.0/16,fd00::/8"
        raise ValueError(f"{variable}: got {given!r}; allowed: {allowed}") from error
