"""Commands on access: make a token, sign in."""

import os
import sys
import time
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from trainops.cli import server
from trainops.cli.api import Api
from trainops.cli.problems import ExitCode, Problem
from trainops.cli.server import Server
from trainops.cli.session import Session, command

PANEL = "Access"
DAY_SECONDS = 86_400
Username = Annotated[
    str | None, typer.Option(help="Else TRAINOPS_USERNAME, else you are asked.", show_default=False)
]
Name = Annotated[str, typer.Option(help="For people.")]
Days = Annotated[
    float | None, typer.Option(min=0.01, max=36_500, help="It expires after; else it does not.")
]


def register(app: typer.Typer) -> None:
    """Add these commands, in the order of the help."""
    for name, function in (("login", login), ("token", token)):
        command(app, name, panel=PANEL)(function)


def login(
    session: Session, username: Username = None, name: Name = "cli", days: Days = None
) -> None:
    """Sign in, and remember the server and a token for the next commands."""
    made = _by_password(session, username, _wanted(name, days))
    path = server.remember(Server(session.server.url, made["token"]))
    if session.out.is_json:
        session.out.json(made)
    session.out.note(f"Signed in at {session.server.url}; the token is in {path}.")


def token(session: Session, username: Username = None, name: Name = "", days: Days = None) -> None:
    """Make an API token and print it, this once."""
    wanted = _wanted(name, days)
    if session.server.token and username is None and "TRAINOPS_USERNAME" not in os.environ:
        made = session.api.post("tokens", wanted)
    else:
        made = _by_password(session, username, wanted)
    if session.out.is_json:
        session.out.json(made)
    else:
        session.out.text(made["token"])
        session.out.note("It is shown this once. Use it as TRAINOPS_TOKEN, or with --token.")


def _wanted(name: str, days: float | None) -> dict[str, Any]:
    if days is None:
        return {"name": name}
    expires_at = datetime.fromtimestamp(time.time() + days * DAY_SECONDS, UTC)
    return {"name": name, "expires_at": expires_at.isoformat()}


def _by_password(session: Session, username: str | None, wanted: dict[str, Any]) -> dict[str, Any]:
    username = username or os.environ.get("TRAINOPS_USERNAME")
    password = os.environ.get("TRAINOPS_PASSWORD")
    if not (username and password) and not sys.stdin.isatty():
        raise Problem(
            "Nobody is there to ask; set TRAINOPS_USERNAME and TRAINOPS_PASSWORD.", ExitCode.USAGE
        )
    username = username or typer.prompt("Username", err=True)
    password = password or typer.prompt("Password", hide_input=True, err=True)
    with Api(Server(session.server.url)) as stranger:  # an old token would be refused first
        made = stranger.post("tokens", {"username": username, "password": password, **wanted})
    return dict(made)
