"""Settings of notifications, read once at the start: private networks, mail server, own address."""

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from trainops import networks
from trainops.networks import Network

NETWORKS, MAIL, PUBLIC_URL = (
    "TRAINOPS_WEBHOOK_PRIVATE_ADDRESSES", "TRAINOPS_MAIL_URL", "TRAINOPS_PUBLIC_URL",
)  # fmt: skip
PORTS = {"smtp": 25, "smtp+starttls": 587, "smtps": 465}
MAIL_ALLOWED = "smtp://, smtp+starttls:// or smtps://, then USER:PASSWORD@HOST:PORT"
TIMEOUT_SECONDS = 10


def private_networks(environment: Mapping[str, str] = os.environ) -> tuple[Network, ...]:
    """Return the networks that webhooks may reach besides public addresses. Raises ValueError."""
    return networks.allowed(NETWORKS, environment)


def mail_server(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return Django's settings of the mail server; EMAIL_HOST is empty where none is configured.

    Raises ValueError, without the password.
    """
    given = environment.get(MAIL, "").strip()
    parts = urlsplit(given or "smtp:")
    port = 0
    try:
        names_a_server = parts.scheme in PORTS and parts.hostname and parts.path in ("", "/")
        is_valid = not given or names_a_server
        port = parts.port or PORTS.get(parts.scheme, 0)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ValueError(f"{MAIL}: got the scheme {parts.scheme!r}; allowed: {MAIL_ALLOWED}")
    return {
        "EMAIL_HOST": parts.hostname or "",
        "EMAIL_PORT": port,
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_TLS": parts.scheme == "smtp+starttls",
        "EMAIL_USE_SSL": parts.scheme == "smtps",
        "EMAIL_TIMEOUT": TIMEOUT_SECONDS,
        "DEFAULT_FROM_EMAIL": environment.get("TRAINOPS_MAIL_FROM") or "trainops@localhost",
    }


def public_url(environment: Mapping[str, str] = os.environ) -> str:
    """Return the address of this installation, which links begin with; empty: unknown."""
    given = environment.get(PUBLIC_URL, "").strip().rstrip("/")
    parts = urlsplit(given)
    if given and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError(f"{PUBLIC_URL}: got {given!r}; allowed: https://HOST")
    return given
