"""The command line as a whole. A module is imported when one of its commands is used."""

from importlib import import_module
from typing import Annotated

import typer

from trainops.cli.type_names import WordedGroup
from trainops.version import VERSION

# The modules in the order of the help, with their commands and groups.
MODULES = {
    "submitting": ("run", "config"),
    "operations": ("ls", "show", "watch", "events", "receipt", "cancel", "resume", "rm"),
    "editing": ("edit",),
    "bulk": ("bulk",),
    "waiting": ("wait", "metrics", "open", "completion"),
    "branches": ("fork", "extend", "warm-start"),
    "logs": ("logs",),
    "points": ("export-points",),
    "run_imports": ("import-runs",),
    "downloading": ("download",),
    "media": ("media",),
    "comparing": ("compare",),
    "studies": ("studies",),
    "checkpoints": ("checkpoints",),
    "recipes": ("recipes",),
    "catalogue": ("upload", "workers"),
    "datasets": ("datasets",),
    "statistics": ("stats", "usage"),
    "tokens": ("login", "token"),
    "contexts": ("context",),
    "shares": ("shares",),
    "users": ("reset-password", "users"),
    "notifications": ("notifications",),
}
COMPLETION = "_TRAINOPS_COMPLETE"  # the variable by which a shell asks for completions
HELP = """Submit, watch, stop and resume long machine-learning operations.

Example: trainops ls 'state:running'"""
EPILOG = "Exit codes: 0 ok, 1 failed, 2 usage or bad config, 3 not found, 4 conflict."


def build(command: str | None = None) -> typer.Typer:
    """Return the application with every command, or with the module of this one only."""
    app = typer.Typer(
        cls=WordedGroup,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help=HELP,
        epilog=EPILOG,
    )
    app.callback()(_options)
    wanted = [name for name, commands in MODULES.items() if command in commands]
    for name in wanted or MODULES:
        import_module(f"trainops.cli.{name}").register(app)
    return app


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"trainops {VERSION}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Take the options that stand before a command."""
