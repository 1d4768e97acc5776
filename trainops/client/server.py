"""Where the server is and what to show it: by option, by environment, or as `up` wrote it."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from trainops import paths
from trainops.client.problems import ExitCode, Problem

DEFAULT_URL = "http://127.0.0.1:8000"


@dataclass(frozen=True, slots=True)
class ServerAddress:
    url: str  # without a slash at its end
    token: str = ""

    @property
    def is_local(self) -> bool:
        return urlsplit(self.url).hostname in ("localhost", "127.0.0.1", "::1")

    def page(self, operation_id: str) -> str:
        return f"{self.url}/operations/{operation_id}/"


def find(*, url: str | None = None, token: str | None = None) -> ServerAddress:
    """Return the server that the options, TRAINOPS_URL, TRAINOPS_TOKEN or cli.json name.

    A token from the file is only ever sent to the URL that stands beside it.

    Raises:
        Problem: the URL is none, or the file cannot be read.
    """
    remembered = _remembered()
    url = url or os.environ.get("TRAINOPS_URL") or remembered.url or DEFAULT_URL
    url = url.rstrip("/")
    if not _is_server(url):
        raise Problem(f"{url!r} is not a server address; example: {DEFAULT_URL}", ExitCode.USAGE)
    token = token or os.environ.get("TRAINOPS_TOKEN") or ""
    if not token and url == remembered.url:
        token = remembered.token
    return ServerAddress(url, token)


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
    """Write cli.json, readable by its owner only."""
    path = cli_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump({"url": server.url, "token": server.token}, file)
    draft.replace(path)
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
