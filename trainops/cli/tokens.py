"""Commands on access: make a token, sign in."""

import os
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer

from trainops.cli.session import Session, command
from trainops.client import server
from trainops.client.api import Api
from trainops.client.problems import ExitCode, Problem, Refused
from trainops.client.responses import NewToken, TokenRequest
from trainops.client.server import ServerAddress

PANEL = "Access"
DAY_SECONDS = 86_400
CODE_REQUIRED = "CODE_REQUIRED"  # the password is right, and the account has a second factor
Username = Annotated[
    str | None,
    typer.Option(help="Username; by default TRAINOPS_USERNAME, else prompted.", show_default=False),
]
Name = Annotated[str, typer.Option(help="Display name of the token.")]
Days = Annotated[
    float | None,
    typer.Option(min=0.01, max=36_500, help="Days until the token expires; by default never."),
]


class Scope(StrEnum):
    USER = "user"
    READ = "read"
    WORKER = "worker"


ScopeOption = Annotated[
    Scope, typer.Option(help="`read`: requests that change nothing; `worker`: worker endpoints.")
]


def register(app: typer.Typer) -> None:
    """Add these commands, in the order of the help."""
    for name, function in (("login", login), ("token", token)):
        command(app, name, panel=PANEL)(function)


def login(
    session: Session, username: Username = None, name: Name = "cli", days: Days = None
) -> None:
    """Sign in, and save a token for later commands, in the context if one is used.

    Example: trainops login --url https://trainops.example.org
    """
    made = _by_password(session, username, token_request(name, days))
    path = server.remember(replace(session.server, token=made["token"]))
    if session.out.is_data:
        session.out.data(made)
    session.out.note(f"Signed in at {session.server.url}; the token is in {path}.")


def token(
    session: Session,
    username: Username = None,
    name: Name = "",
    days: Days = None,
    scope: ScopeOption = Scope.USER,
) -> None:
    """Create an API token and print it once.

    Example: trainops token --name ci --scope read --days 30
    """
    wanted: TokenRequest = {**token_request(name, days), "scope": scope.value}
    if session.server.token and username is None and "TRAINOPS_USERNAME" not in os.environ:
        made: NewToken = session.api.post("tokens", wanted)
    else:
        made = _by_password(session, username, wanted)
    show_token(session, made)


def show_token(session: Session, made: NewToken) -> None:
    """Print a new token."""
    if session.out.is_data:
        session.out.data(made)
    else:
        session.out.text(made["token"])
        session.out.note("The token is shown only once. Use it as TRAINOPS_TOKEN or with --token.")


def token_request(name: str, days: float | None) -> TokenRequest:
    """Return the body of a request for a token; days: until it expires, None: never."""
    if days is None:
        return {"name": name}
    expires_at = datetime.fromtimestamp(time.time() + days * DAY_SECONDS, UTC)
    return {"name": name, "expires_at": expires_at.isoformat()}


def is_interactive() -> bool:
    """Whether there is a terminal to ask on."""
    return sys.stdin.isatty()


def _by_password(session: Session, username: str | None, wanted: TokenRequest) -> NewToken:
    username = username or os.environ.get("TRAINOPS_USERNAME")
    password = os.environ.get("TRAINOPS_PASSWORD")
    if not (username and password) and not is_interactive():
        raise Problem(
            "Not interactive: set TRAINOPS_USERNAME and TRAINOPS_PASSWORD.", ExitCode.USAGE
        )
    username = username or typer.prompt("Username", err=True)
    password = password or typer.prompt("Password", hide_input=True, err=True)
    with Api(ServerAddress(session.server.url)) as stranger:  # an old token would be refused first
        body = {"username": username, "password": password, **wanted}
        if code := os.environ.get("TRAINOPS_CODE"):
            body["code"] = code
        try:
            made: NewToken = stranger.post("tokens", body)
        except Refused as refused:
            if refused.code != CODE_REQUIRED:
                raise
            made = stranger.post("tokens", {**body, "code": _code()})
    return made


def _code() -> str:
    """Ask for the code of a second factor."""
    if not is_interactive():
        raise Problem(
            "This account has a second factor, and standard input is not interactive.",
            ExitCode.USAGE,
            hints=("Set TRAINOPS_CODE to a code of the authenticator app or a recovery code.",),
        )
    code: str = typer.prompt("Code of the authenticator app, or a recovery code", err=True)
    return code
