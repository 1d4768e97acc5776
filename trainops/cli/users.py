"""Commands on accounts and the tokens of service accounts; for superusers."""

import os
import subprocess
import sys
from enum import StrEnum
from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from trainops import paths
from trainops.cli import looks, times
from trainops.cli.session import SERVER_ONLY, Session, command
from trainops.cli.tokens import Days, Name, Scope, ScopeOption, show_token, token_request
from trainops.cli.type_names import WordedGroup
from trainops.client.problems import ExitCode, Problem
from trainops.client.responses import AuditRow, Message, NewPassword, NewUser, Token, User

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainops.client.api import RowPage

PANEL = "Access"
STAYS = "A second factor and identities stay; a superuser ends them in the admin."
PAGE = 500  # entries in a response
Username = Annotated[str, typer.Argument(metavar="USERNAME", help="Username.")]
Local = Annotated[
    bool,
    typer.Option("--local", help="In the database of the installation here, without a server."),
]


class Role(StrEnum):
    """Roles of users; `none` has no access."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    NONE = "none"


def register(app: typer.Typer) -> None:
    """Add the group `users`, and the command `reset-password`."""
    group = typer.Typer(
        cls=WordedGroup,
        no_args_is_help=True,
        help="List and add users, give roles, disable accounts; for superusers.\n\n"
        "Example: trainops users add ben --role operator",
    )
    for function in (ls, add, role, disable, enable, token, tokens, revoke, log):
        command(group, function.__name__)(function)
    command(group, "remove-second-factor")(remove_second_factor)
    app.add_typer(group, name="users", rich_help_panel=PANEL)
    command(app, "reset-password", panel=PANEL)(reset_password)


def ls(session: Session) -> None:
    """List the accounts with their roles.

    Example: trainops users ls
    """
    page: RowPage[User] = session.api.rows("users", limit=500)
    if session.out.is_data:
        session.out.data(page.rows)
        return
    session.out.table(
        ["USERNAME", "ROLE", "ACCOUNT", "2ND FACTOR", "EMAIL", "SIGNED IN", "CREATED"],
        (
            [
                looks.cell(row["username"]),
                looks.cell(_role(row)),
                looks.cell("active" if row["is_active"] else "disabled"),
                looks.cell("yes" if row["has_second_factor"] else "no"),
                looks.cell(row["email"]),
                looks.cell(looks.ago(row["signed_in_at"])),
                looks.cell(looks.ago(row["created_at"])),
            ]
            for row in page.rows
        ),
        narrow=["USERNAME", "ROLE", "ACCOUNT", "SIGNED IN"],
        elastic="USERNAME",
    )
    if page.has_more:
        session.out.note("There are more than 500; the page Admin lists all.")


def add(
    session: Session,
    username: Username,
    role: Annotated[Role, typer.Option(help="Role of the user.")] = Role.NONE,
    email: Annotated[str, typer.Option(help="Mail address, for notifications.")] = "",
    service: Annotated[
        bool, typer.Option("--service", help="A service account: with tokens, no password.")
    ] = False,
) -> None:
    """Create an account with a random password, and print the password once.

    Example: trainops users add ben --role operator
    """
    body = {"username": username, "email": email, "role": _value(role), "is_service": service}
    made: NewUser = session.api.post("users", body)
    password = made["password"]
    if session.out.is_data:
        session.out.data(made)
    elif password is None:
        session.out.note(f"{username} is a service account; users token {username} makes a token.")
    else:
        _show(session, {"username": username, "password": password})


def role(
    session: Session,
    username: Username,
    role: Annotated[Role, typer.Argument(help="Role instead of the present one.")],
) -> None:
    """Give a user another role; `none` takes all access away.

    Example: trainops users role ben viewer
    """
    _change(session, username, {"role": _value(role)})


def disable(session: Session, username: Username) -> None:
    """Disable an account: no access by password, session or token until it is enabled.

    Example: trainops users disable ben
    """
    _change(session, username, {"is_active": False})


def enable(session: Session, username: Username) -> None:
    """Enable a disabled account.

    Example: trainops users enable ben
    """
    _change(session, username, {"is_active": True})


def token(
    session: Session,
    username: Username,
    name: Name = "",
    days: Days = None,
    scope: ScopeOption = Scope.USER,
) -> None:
    """Create a token of a service account and print it once.

    Example: trainops users token nightly --name ci --days 90
    """
    body = {**token_request(name, days), "scope": scope.value}
    show_token(session, session.api.post(f"users/{username}/tokens", body))


def tokens(session: Session, username: Username) -> None:
    """List the tokens of an account.

    Example: trainops users tokens nightly
    """
    found: list[Token] = session.api.get(f"users/{username}/tokens")
    if session.out.is_data:
        session.out.data(found)
        return
    session.out.table(
        ["TOKEN", "NAME", "SCOPE", "USED", "FROM", "EXPIRES"],
        (
            [
                looks.cell(each["token_id"]),
                looks.cell(each["name"]),
                looks.cell(each["scope"]),
                looks.cell(looks.ago(each["last_used_at"])),
                looks.cell(each["last_used_from"]),
                looks.cell(looks.at(each["expires_at"]) if each["expires_at"] else "never"),
            ]
            for each in found
        ),
        narrow=["TOKEN", "NAME", "USED"],
        elastic="NAME",
    )


def revoke(
    session: Session,
    username: Username,
    token_id: Annotated[str, typer.Argument(metavar="TOKEN", help="Id of the token.")],
) -> None:
    """Revoke a token of an account.

    Example: trainops users revoke nightly tok_0123456789abcdef
    """
    answer: Message = session.api.delete(f"users/{username}/tokens/{token_id}")
    if session.out.is_data:
        session.out.data(answer)
    else:
        session.out.text(looks.plain(answer["message"]))


def log(
    session: Session,
    event: Annotated[
        str | None, typer.Option(help="Only this event, such as `operation deleted`.")
    ] = None,
    actor: Annotated[str | None, typer.Option(help="Only what this user did.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Only entries since then: 90s, 30m, 2h, 7d or an ISO time.")
    ] = None,
    number: Annotated[
        int, typer.Option(min=0, help="Number of entries, newest first; 0: all.")
    ] = 50,
) -> None:
    """List the audit log: what was done to accounts, tokens and stored work; for admins.

    Example: trainops users log --since 7d --number 0 -o csv
    """
    wanted = {"event": event, "actor": actor}
    params = {name: each for name, each in wanted.items() if each is not None}
    if since is not None:
        params["since"] = times.since(since)
    limit = min(number or PAGE, PAGE)
    found: Iterator[AuditRow] = session.api.every("audit", limit=limit, **params)
    rows = list(islice(found, number or None))
    if session.out.is_data:
        session.out.data(rows)
        return
    session.out.table(
        ["TIME", "EVENT", "BY", "FROM", "DETAILS"],
        (
            [
                looks.cell(looks.at(row["created_at"])),
                looks.cell(row["event"]),
                looks.cell(row["actor"]),
                looks.cell(row["address"]),
                looks.cell(" ".join(f"{name}={each}" for name, each in row["details"].items())),
            ]
            for row in rows
        ),
        narrow=["TIME", "EVENT", "BY", "DETAILS"],
        elastic="DETAILS",
    )


def remove_second_factor(session: Session, username: Username, local: Local = False) -> None:
    """Remove the second factor of a user who has lost app and recovery codes.

    Example: trainops users remove-second-factor ben
    """
    if local:
        answer: Message = {"message": _local(username, "--remove-second-factor")}
    else:
        answer = session.api.delete(f"users/{username}/second-factor")
    if session.out.is_data:
        session.out.data(answer)
    else:
        session.out.text(looks.plain(answer["message"]))


def reset_password(session: Session, username: Username, local: Local = False) -> None:
    """Set a random password and print it once; revokes the tokens of the account.

    Example: trainops reset-password admin --local
    """
    if local:
        made: NewPassword = {"username": username, "password": _local(username)}
    else:
        made = session.api.post(f"users/{username}/password")
    _show(session, made)
    if not session.out.is_data:
        session.out.note(STAYS)


def _local(username: str, *options: str) -> str:
    """Change an account in a process that loads the server's modules; return what it prints."""
    if find_spec("trainops.launch") is None:
        raise Problem(SERVER_ONLY, ExitCode.USAGE)
    done = subprocess.run(  # noqa: S603 - our own module; the name is one argument
        [sys.executable, "-m", "trainops.launch.password", username, *options],
        env={**os.environ, "TRAINOPS_DATA_DIR": str(paths.data_dir().resolve())},
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Problem((done.stderr.strip().splitlines() or ["no output"])[-1], ExitCode.USAGE)
    return done.stdout.strip()


def _change(session: Session, username: str, change: dict[str, object]) -> None:
    changed: User = session.api.patch(f"users/{username}", change)
    if session.out.is_data:
        session.out.data(changed)
    else:
        account = "active" if changed["is_active"] else "disabled"
        session.out.text(f"{looks.plain(changed['username'])}: {_role(changed)}, {account}")


def _show(session: Session, made: NewPassword) -> None:
    if session.out.is_data:
        session.out.data(made)
    else:
        session.out.text(made["password"])
        session.out.note(f"The password of {made['username']} is shown only once.")


def _role(user: User) -> str:
    return "superuser" if user["is_superuser"] else user["role"] or "none"


def _value(role: Role) -> str | None:
    return None if role is Role.NONE else role.value
