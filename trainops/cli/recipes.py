"""The group `recipes`: list them, show one, write a package of one, check one."""

import typer

from trainops.cli import catalogue, checking, packages
from trainops.cli.groups import group_with_default
from trainops.cli.session import command

DEFAULT = "show"


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(
        cls=group_with_default(DEFAULT),
        help="List the recipes (default), write a package of one, check one.\n\n"
        "Example: trainops recipes digits",
    )
    for name, function in (
        (DEFAULT, catalogue.recipes), ("new", packages.new), ("check", checking.check),
    ):  # fmt: skip
        command(group, name)(function)
    app.add_typer(group, name="recipes", rich_help_panel=catalogue.PANEL)
