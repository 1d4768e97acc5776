"""The command that checks whether a recipe resumes exactly. No server is needed."""

import os
from pathlib import Path
from typing import Annotated

import typer

from trainops.cli.out import OutputFormat
from trainops.cli.session import Session
from trainops.cli.submission import Submission
from trainops.client.problems import ExitCode, Problem
from trainops.plain import JsonObject
from trainops.plain_yaml import UNREADABLE, parsed, reason

Repeated = list[str] | None


def check(
    session: Session,
    name: Annotated[str, typer.Argument(show_default=False, help="Name of a registered recipe.")],
    parameters: Annotated[
        Repeated,
        typer.Option(
            metavar="FILE|KEY=VALUE",
            help="Parameters of the recipe: a YAML file, or one value; repeatable. By default "
            "those of the recipe's example.",
        ),
    ] = None,
    assignments: Annotated[
        Repeated,
        typer.Option("--set", metavar="PATH=VALUE", help="Override a config field; repeatable."),
    ] = None,
    inputs: Annotated[
        Repeated,
        typer.Option(
            "--input",
            metavar="ID=PATH",
            help="Parquet file of a dataset id, or final checkpoint of an operation id, that "
            "the config names; repeatable.",
        ),
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="Required kind of the recipe; by default any kind.")
    ] = None,
    max_steps: Annotated[
        int, typer.Option(min=2, help="Steps after which the undisturbed run is cut.")
    ] = 60,
    max_seconds: Annotated[
        float, typer.Option(min=0.1, help="Seconds after which the undisturbed run is cut.")
    ] = 8.0,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Processes (ranks) that compute each run; by default those of the config.",
        ),
    ] = None,
    cost: Annotated[
        bool, typer.Option(help="Whether the time of a step is measured as well.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --output json.")] = False,
) -> None:
    """Check whether a recipe resumes exactly: stop it, resume it, compare bit for bit.

    Exit code 0: exact; 1: not exact, the report names what was forgotten.

    Example: trainops recipes check digits --set epochs=2 --max-steps 20
    """
    from trainops.cli import check_process  # noqa: PLC0415 - loads Pydantic
    from trainops.recipe_checks import RecipeCheck  # noqa: PLC0415 - not in trainops-client

    request = RecipeCheck(
        parent=os.getpid(),
        recipe=name,
        kind=kind,
        config=dict(_config(parameters or [], assignments or [])),
        inputs=dict(_input(each) for each in inputs or []),
        max_steps=max_steps,
        max_seconds=max_seconds,
        measures_cost=cost,
        processes=processes,
    )
    found = check_process.report_of(
        request, lambda text: session.out.note(f"  {text}", style="bright_black")
    )
    if as_json:
        session.out.form = OutputFormat.JSON
    if session.out.is_data:
        session.out.data(found.report)
    else:
        session.out.text(found.text)
    if not found.is_exact:
        raise typer.Exit(ExitCode.FAILED)


def _config(parameters: list[str], assignments: list[str]) -> JsonObject:
    """Return the fields that replace those of the example. Raises Problem."""
    wanted = Submission({"config": {"parameters": {}}}, "--parameters")
    for typed in parameters:
        if "=" in typed:
            wanted.assign(f"parameters.{typed}")
        else:
            wanted.section("config")["parameters"] = {**_parameters_of(wanted), **_read(typed)}
    for typed in assignments:
        wanted.assign(typed)
    return wanted.section("config")


def _parameters_of(wanted: Submission) -> JsonObject:
    found = wanted.section("config")["parameters"]
    return found if isinstance(found, dict) else {}


def _read(path: str) -> JsonObject:
    try:
        found = parsed(Path(path).read_text("utf-8"))[0]
    except (OSError, *UNREADABLE) as error:
        raise Problem(f"--parameters {path}: {reason(error)}", ExitCode.USAGE) from error
    if not isinstance(found, dict):
        problem = f"--parameters {path}: got a {type(found).__name__}; allowed: names and values"
        raise Problem(problem, ExitCode.USAGE)
    return found


def _input(typed: str) -> tuple[str, Path]:
    name, equals, path = typed.partition("=")
    if not (name and equals and Path(path).exists()):
        problem = f"--input {typed}: allowed: ID=PATH of a file or directory that exists"
        raise Problem(problem, ExitCode.USAGE)
    return name, Path(path)
