"""The command that writes a package of a recipe."""

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from trainops.cli.session import Session
from trainops.client.problems import ExitCode, Problem


def new(
    session: Session,
    name: Annotated[
        str, typer.Argument(show_default=False, help="Name of the recipe and of its package.")
    ],
    form: Annotated[
        str,
        typer.Option(
            help="How the recipe is written: ingredients, module, loop, lightning or transformers."
        ),
    ] = "ingredients",
) -> None:
    """Write a working package of a recipe, with a test, into the new directory NAME.

    Example: trainops recipes new spectra --form loop
    """
    writing = import_module("trainops.scaffold.writing")  # it reads the registered recipes
    try:
        files = writing.write_package(name, form, Path())
    except writing.NotWritten as error:
        raise Problem(str(error), ExitCode.USAGE) from error
    commands = writing.next_commands(name)
    if session.out.is_data:
        session.out.data({"files": [str(each) for each in files], "commands": commands})
        return
    for each in files:
        session.out.text(str(each))
    session.out.note("Next:")
    for what, command in commands.items():
        session.out.note(f"  {what:<8} {command}")
