"""Settings of sign-ins by OpenID Connect, read once at the start: the provider, and who gets in."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from trainops import networks
from trainops.networks import Network

PREFIX = "TRAINOPS_OIDC_"
ISSUER, CLIENT, NETWORKS = f"{PREFIX}ISSUER", f"{PREFIX}CLIENT_ID", f"{PREFIX}PRIVATE_ADDRESSES"
ROLES = ("viewer", "operator", "admin")
EVERYONE = "*"  # instead of a group
FLAGS = {"0": False, "1": True}
DEFAULTS = {
    "ISSUER": "",
    "CLIENT_ID": "",
    "CLIENT_SECRET": "",
    "CLIENT_SECRET_FILE": "",
    "NAME": "",
    "SCOPES": "openid profile email",
    "USERNAME_CLAIM": "preferred_username",
    "GROUPS_CLAIM": "groups",
    "ROLES": "",
    "REQUIRED_GROUP": "",
    "EMAIL_DOMAINS": "",
    "CREATE_ACCOUNTS": "1",
    "SESSION_HOURS": "12",
    "PRIVATE_ADDRESSES": "",
}
MAX_ISSUER = 255
MAX_SESSION_HOURS = 336  # two weeks, as of a sign-in by password


@dataclass(frozen=True, slots=True)
class Oidc:
    """A provider of identities, and what its claims give here."""

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)  # empty: a public client
    name: str
    scopes: str
    username_claim: str
    groups_claim: str
    roles: tuple[tuple[str, str], ...]  # pairs of group and role; empty: roles are given here
    required_group: str
    email_domains: tuple[str, ...]
    creates_accounts: bool
    session_hours: float
    networks: tuple[Network, ...]


def read(environment: Mapping[str, str] = os.environ) -> Oidc | None:
    """Return the provider of sign-ins; None: there is none. Raises ValueError."""
    given = {name: value.strip() for name, value in environment.items() if value.strip()}
    given = {name.removeprefix(PREFIX): value for name, value in given.items() if _is_ours(name)}
    if unknown := sorted(set(given) - set(DEFAULTS)):
        allowed = ", ".join(PREFIX + each for each in DEFAULTS)
        raise ValueError(f"got {PREFIX}{unknown[0]}; allowed: {allowed}")
    if not given:
        return None
    value = {**DEFAULTS, **given}
    for name in ("ISSUER", "CLIENT_ID"):
        if not value[name]:
            raise ValueError(f"{PREFIX}{min(given)} is set without {PREFIX}{name}")
    issuer = _issuer(value["ISSUER"])
    return Oidc(
        issuer=issuer,
        client_id=value["CLIENT_ID"],
        client_secret=_secret(value["CLIENT_SECRET"], value["CLIENT_SECRET_FILE"]),
        name=value["NAME"] or str(urlsplit(issuer).hostname),
        scopes=_scopes(value["SCOPES"]),
        username_claim=value["USERNAME_CLAIM"],
        groups_claim=value["GROUPS_CLAIM"],
        roles=_roles(value["ROLES"]),
        required_group=value["REQUIRED_GROUP"],
        email_domains=_names(value["EMAIL_DOMAINS"].lower()),
        creates_accounts=_flag("CREATE_ACCOUNTS", value["CREATE_ACCOUNTS"]),
        session_hours=_hours(value["SESSION_HOURS"]),
        networks=networks.allowed(NETWORKS, environment),
    )


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, to which requests need no encryption."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_ours(name: str) -> bool:
    return name.startswith(PREFIX)


def _issuer(given: str) -> str:
    parts = urlsplit(given)
    host = parts.hostname or ""
    is_secure = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    has_more = bool(parts.query or parts.fragment or parts.username)
    if not (is_secure and host) or has_more or len(given) > MAX_ISSUER:
        allowed = "https://HOST/PATH, exactly as the provider names itself"
        raise ValueError(f"{ISSUER}: got {given!r}; allowed: {allowed}")
    return given


def _secret(given: str, path: str) -> str:
    if given and path:
        raise ValueError(f"{PREFIX}CLIENT_SECRET and {PREFIX}CLIENT_SECRET_FILE: allowed: one")
    if not path:
        return given
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise ValueError(f"{PREFIX}CLIENT_SECRET_FILE: {path}: {error.strerror}") from error


def _scopes(given: str) -> str:
    if "openid" not in given.split():
        raise ValueError(f"{PREFIX}SCOPES: got {given!r}; allowed: openid, and others after spaces")
    return " ".join(given.split())


def _roles(given: str) -> tuple[tuple[str, str], ...]:
    """Read GROUP=ROLE,GROUP=ROLE; a group may have an equals sign."""
    pairs = []
    for each in _names(given):
        group, _, role = each.rpartition("=")
        if not group or role not in ROLES:
            allowed = f"GROUP=ROLE, with one of the roles {', '.join(ROLES)}"
            raise ValueError(f"{PREFIX}ROLES: got {each!r}; allowed: {allowed}")
        pairs.append((group.strip(), role))
    return tuple(pairs)


def _names(given: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in given.split(",") if each.strip())


def _flag(name: str, given: str) -> bool:
    if given not in FLAGS:
        raise ValueError(f"{PREFIX}{name}: got {given!r}; allowed: 0, 1")
    return FLAGS[given]


def _hours(given: str) -> float:
    try:
        hours = float(given)
    except ValueError:
        hours = 0.0
    if not 0 < hours <= MAX_SESSION_HOURS:
        allowed = f"hours, more than 0 and at most {MAX_SESSION_HOURS}"
        raise ValueError(f"{PREFIX}SESSION_HOURS: got {given!r}; allowed: {allowed}")
    return hours
