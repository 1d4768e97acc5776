"""Commands on contexts: several servers by name. None of them prints a token or sends a request."""

from typing import Annotated

import typer

from trainops.cli import looks
from trainops.cli.session import Session, command
from trainops.cli.type_names import WordedGroup
from trainops.client import contexts, server
from trainops.client.contexts import LOCAL, ServerContext
from trainops.client.problems import ExitCode, Problem
from trainops.paths import COMMAND

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.")]


def register(app: typer.Typer) -> None:
    """Add the group `context`."""
    group = typer.Typer(
        cls=WordedGroup,
        no_args_is_help=True,
        help="List, add, select and remove servers by name.\n\nExample: trainops context use lab",
    )
    for function in (ls, add, use, rm):
        command(group, function.__name__)(function)
    app.add_typer(group, name="context", rich_help_panel="Access")


def ls(session: Session) -> None:
    """List the contexts; `local` is the server that `up` or `login` saved. Shows no tokens.

    Example: trainops context ls
    """
    found = contexts.read()
    local = server.find(context=LOCAL)
    every = {LOCAL: ServerContext(local.url, local.token), **found.named}
    rows = [
        {
            "name": name,
            "url": each.url,
            "is_current": name == (found.current or LOCAL),
            "is_signed_in": bool(each.token),
        }
        for name, each in every.items()
    ]
    if session.out.is_data:
        session.out.data(rows)
        return
    session.out.table(
        ["CURRENT", "NAME", "URL", "TOKEN"],
        (
            [
                "*" if row["is_current"] else "",
                looks.cell(row["name"]),
                looks.cell(row["url"]),
                "saved" if row["is_signed_in"] else looks.DASH,
            ]
            for row in rows
        ),
        elastic="URL",
    )


def add(session: Session, name: Name) -> None:
    """Save a server by name, with its URL (--url) and, if given, a token (--token).

    Example: trainops context add lab --url https://lab.example.org && trainops login --context lab
    """
    if not session.given_url:
        raise Problem("No URL; example: --url https://trainops.example.org", ExitCode.USAGE)
    url = server.checked(session.given_url)
    path = contexts.write(
        contexts.read().added(name, ServerContext(url, session.given_token or ""))
    )
    _say(session, name, url)
    session.out.note(f"Saved in {path}.")
    if not session.given_token:
        session.out.note(f"  sign in  {COMMAND} login --context {name}")
    session.out.note(f"  use it   {COMMAND} context use {name}")


def use(session: Session, name: Name) -> None:
    """Use this server in later commands and in the Python client; `local`: the one of `up`.

    Example: trainops context use lab
    """
    contexts.write(contexts.read().used(name))
    _say(session, name, server.find(context=name).url)


def rm(session: Session, name: Name) -> None:
    """Remove a server with its token from the file; the token itself remains valid.

    Example: trainops context rm lab
    """
    found = contexts.read()
    url = found.require(name).url
    contexts.write(found.removed(name))
    _say(session, name, url)
    if found.current == name:
        session.out.note(f"Later commands use {LOCAL}.")


def _say(session: Session, name: str, url: str) -> None:
    if session.out.is_data:
        session.out.data({"name": name, "url": url})
    else:
        session.out.text(f"{looks.plain(name)}  {looks.plain(url)}")
