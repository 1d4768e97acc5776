"""The HTTP API as a command sees it: data out of the envelope, or a problem with an exit code."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import httpx

from trainops.cli.problems import ExitCode, Problem, Refused, Unreachable
from trainops.cli.server import Server
from trainops.paths import COMMAND

PREFIX = "/api/v1/"
# Verifying a large checkpoint or taking in a large upload keeps the server busy for a while.
TIMEOUT = httpx.Timeout(30, connect=5, read=600, write=600)
EXIT_CODES = {404: ExitCode.NOT_FOUND, 409: ExitCode.CONFLICT}
USAGE_STATUSES = frozenset({400, 405, 413, 415, 422})


@dataclass(frozen=True, slots=True)
class Rows:
    """One page of a list; `has_more` says whether it is the last."""

    rows: list[dict[str, Any]]
    has_more: bool = False
    total_count: int | None = None


class Api:
    """Speaks with one server. Every method raises Refused, Unreachable or Problem."""

    def __init__(self, server: Server) -> None:
        self.server = server
        headers = {"Accept": "application/json", "User-Agent": "trainops-cli"}
        if server.token:
            headers["Authorization"] = f"Bearer {server.token}"
        self._http = httpx.Client(
            base_url=server.url + PREFIX,
            headers=headers,
            timeout=TIMEOUT,
            trust_env=not server.is_local,  # a proxy knows nothing of this machine
            verify=server.url.startswith("https:"),  # to read the authorities takes 25 ms
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, **params: Any) -> Any:
        return self._call("GET", path, params=params)["data"]

    def rows(self, path: str, **params: Any) -> Rows:
        body = self._call("GET", path, params=params)
        return Rows(body["data"], bool(body.get("next")), body.get("total_count"))

    def post(self, path: str, body: Any = None, *, headers: dict[str, str] | None = None) -> Any:
        return self._call("POST", path, json={} if body is None else body, headers=headers)["data"]

    def upload(self, path: str, file: IO[bytes], filename: str, fields: dict[str, str]) -> Any:
        return self._call("POST", path, files={"file": (filename, file)}, data=fields)["data"]

    def download(self, path: str, target: Path, **params: Any) -> Mapping[str, str]:
        """Write what the address answers with as `target`; return its headers. Raises OSError."""
        given = {name: value for name, value in params.items() if value is not None}
        with (
            self._connected(),
            self._http.stream("GET", path, params=given, headers={"Accept": "*/*"}) as response,
        ):
            if not response.is_success or "json" in response.headers.get("Content-Type", ""):
                response.read()
                self._opened(response)  # raises what it says
            draft = target.with_name(f".{target.name}.draft")
            try:
                with draft.open("wb") as file:
                    for chunk in response.iter_bytes():
                        file.write(chunk)
                draft.rename(target)
            finally:
                draft.unlink(missing_ok=True)
        return response.headers

    def delete(self, path: str) -> Any:
        return self._call("DELETE", path).get("data")

    def _call(self, method: str, path: str, **content: Any) -> dict[str, Any]:
        params = {
            name: value for name, value in content.pop("params", {}).items() if value is not None
        }
        with self._connected():
            response = self._http.request(method, path, params=params, **content)
        return self._opened(response)

    @contextmanager
    def _connected(self) -> Iterator[None]:
        try:
            yield
        except httpx.TimeoutException as error:
            raise Unreachable(f"{self.server.url} did not answer in time ({error}).") from error
        except httpx.TransportError as error:
            raise _nobody(self.server, error) from error
        except (httpx.InvalidURL, UnicodeError) as error:
            raise Problem(f"{self.server.url}: {error}", ExitCode.USAGE) from error

    def _opened(self, response: httpx.Response) -> dict[str, Any]:
        """Return the envelope of a success."""
        if response.status_code == httpx.codes.NO_CONTENT:
            return {}
        try:
            body = response.json()
        except ValueError:
            body = None
        if not isinstance(body, dict) or "success" not in body:
            raise _stranger(self.server, response)
        if not body["success"]:
            raise _refusal(response.status_code, body["error"])
        return body


def _refusal(status: int, error: dict[str, Any]) -> Refused:
    exit_code = EXIT_CODES.get(status)
    if exit_code is None:
        exit_code = ExitCode.USAGE if status in USAGE_STATUSES else ExitCode.FAILED
    details = error.get("details") or {}
    hints = [f"Perhaps: {reason}" for reason in details.get("possible_reasons", [])]
    if status == httpx.codes.UNAUTHORIZED:
        hints.append(f"Sign in with: {COMMAND} login   (or set TRAINOPS_TOKEN)")
    return Refused(
        error["code"], error["message"], exit_code,
        fields=details.get("fields"), hints=tuple(hints),
    )  # fmt: skip


def _nobody(server: Server, error: Exception) -> Unreachable:
    hints = ["It runs elsewhere? Say where: --url http://HOST:PORT, or TRAINOPS_URL."]
    if server.is_local:
        hints.insert(0, f"Start it with: {COMMAND} up")
    return Unreachable(f"Nobody answers at {server.url} ({error}).", hints=tuple(hints))


def _stranger(server: Server, response: httpx.Response) -> Problem:
    if response.is_redirect:
        target = response.headers.get("Location", "elsewhere")
        return Problem(f"{server.url} sends on to {target}; give that address with --url.")
    kind = response.headers.get("Content-Type", "no content type")
    text = f"What answers at {server.url} is not a trainops server"
    if response.is_server_error:
        text = "The server, or a proxy before it, is in trouble"
    return Problem(f"{text} (HTTP {response.status_code}, {kind}).")
