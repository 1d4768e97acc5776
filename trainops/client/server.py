"""Where the server is and what to show it: by option, environment, context, or as `up` wrote it."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from trainops import paths
from trainops.client import contexts
from trainops.client.problems import ExitCode, Problem

DEFAULT_URL = "http://127.0.0.1:8000"


@dataclass(frozen=True, slots=True)
class ServerAddress:
    url: str  # without a slash at its end
    token: str = ""
    context: str = ""  # where the token is saved; empty: in cli.json

    @property
    def is_local(self) -> bool:
        return urlsplit(self.url).hostname in ("localhost", "127.0.0.1", "::1")

    def page(self, operation_id: str) -> str:
        return f"{self.url}/operations/{operation_id}/"


def find(
    *, url: str | None = None, token: str | None = None, context: str | None = None
) -> ServerAddress:
    """Return the server that is meant.

    The first of: `url`, `context`, TRAINOPS_URL, TRAINOPS_CONTEXT, the current context, cli.json.
    A saved token is only ever sent to the URL that stands beside it, and TRAINOPS_TOKEN to no
    context that has a token of its own.

    Raises:
        Problem: the URL is none, there is no such context, or a file cannot be read.
    """
    named = _context(url, context)
    if named is not None:
        name, found = named
        token = token or found.token or os.environ.get("TRAINOPS_TOKEN") or ""
        return ServerAddress(checked(found.url), token, name)
    remembered = _remembered()
    url = checked(url or os.environ.get("TRAINOPS_URL") or remembered.url or DEFAULT_URL)
    token = token or os.environ.get("TRAINOPS_TOKEN") or ""
    if not token and url == remembered.url:
        token = remembered.token
    return ServerAddress(url, token)


def _context(url: str | None, name: str | None) -> tuple[str, contexts.ServerContext] | None:
    """Return the name and the context that is meant, without a name for `local`; None: neither."""
    if url and name:
        raise Problem("got --url and --context; allowed: one of them", ExitCode.USAGE)
    if url:
        return None
    variable, environment_url = os.environ.get("TRAINOPS_CONTEXT"), os.environ.get("TRAINOPS_URL")
    if not name and variable and environment_url:
        raise Problem(
            "TRAINOPS_URL and TRAINOPS_CONTEXT are set; allowed: one of them", ExitCode.USAGE
        )
    name = name or variable
    if not name and environment_url:
        return None
    if name == contexts.LOCAL:
        remembered = _remembered()
        return "", contexts.ServerContext(remembered.url or DEFAULT_URL, remembered.token)
    found = contexts.read()
    name = name or found.current
    return (name, found.require(name)) if name else None


def checked(url: str) -> str:
    """Return the URL without a slash at its end. Raises Problem: it is none of a server."""
    url = url.rstrip("/")
    if not _is_server(url):
        raise Problem(f"{url!r} is not a server address; example: {DEFAULT_URL}", ExitCode.USAGE)
    return url


def _is_server(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that are not closed, a port that is none
        return False


def data_dir() -> Path:
    return paths.data_dir()


def cli_file() -> Path:
    return data_dir() / "cli.json"


def remember(server: ServerAddress) -> Path:
    """Save the token in its context, else with the URL in cli.json, readable by its owner only.

    Returns the path of the file.
    """
    if server.context:
        return contexts.write(contexts.read().signed_in(server.context, server.token))
    path = cli_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    contexts.write_private(path, json.dumps({"url": server.url, "token": server.token}))
    return path


def _remembered() -> ServerAddress:
    path = cli_file()
    try:
        found = json.loads(path.read_text())
        return ServerAddress(str(found["url"]).rstrip("/"), str(found["token"]))
    except FileNotFoundError:
        return ServerAddress("")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Problem(
            f"{path} cannot be used ({error!r})",
            ExitCode.USAGE,
            hints=(f"Remove it, then: {paths.COMMAND} login",),
        ) from error
