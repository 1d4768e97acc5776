"""The command that checks whether a recipe resumes exactly. No server is needed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from trainops.cli.out import OutputFormat
from trainops.cli.session import Session
from trainops.cli.submission import Submission
from trainops.client.problems import ExitCode, Problem
from trainops.plain import Json, JsonObject
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
    cost: Annotated[
        bool, typer.Option(help="Whether the time of a step is measured as well.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --output json.")] = False,
) -> None:
    """Check whether a recipe resumes exactly: stop it, resume it, compare bit for bit.

    Exit code 0: exact; 1: not exact, the report names what was forgotten.

    Example: trainops recipes check digits --set epochs=2 --max-steps 20
    """
    request: JsonObject = {
        "recipe": name,
        "kind": kind,
        "config": _config(parameters or [], assignments or []),
        "inputs": dict(_input(each) for each in inputs or []),
        "max_steps": max_steps,
        "max_seconds": max_seconds,
        "measures_cost": cost,
    }
    answer = _checked(session, request)
    if as_json:
        session.out.form = OutputFormat.JSON
    if session.out.is_data:
        session.out.data(answer["report"])
    else:
        session.out.text(str(answer["text"]))
    report = answer["report"]
    if isinstance(report, dict) and not report["exact"]:
        raise typer.Exit(ExitCode.FAILED)


def _checked(session: Session, request: JsonObject) -> JsonObject:
    """Return the last line of a process that checks. Raises Problem."""
    answer: JsonObject = {}
    with _process(request) as process:
        for line in process.stdout or ():
            answer = json.loads(line)
            if "progress" in answer:
                session.out.note(f"  {answer['progress']}", style="bright_black")
    fields = answer.get("fields")
    if isinstance(fields, dict):
        first, *others = (f"{field}: {problem}" for field, problem in fields.items())
        code = ExitCode.NOT_FOUND if "recipe" in fields else ExitCode.USAGE
        raise Problem(first, code, hints=tuple(others))
    if "report" not in answer:
        first, *others = str(answer.get("failed", "the check ended early")).splitlines()
        raise Problem(first, hints=tuple(others))
    return answer


@contextmanager
def _process(request: Mapping[str, Json]) -> Iterator["subprocess.Popen[str]"]:
    """Start the process; at an interrupt, let it end its own processes before this one ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "trainops.checking"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # the terminal's Ctrl-C reaches it through this process, once
    )
    with process:
        try:
            if process.stdin is not None:
                process.stdin.write(json.dumps({**request, "parent": os.getpid()}))
                process.stdin.close()
            yield process
        except BaseException:
            process.send_signal(signal.SIGINT)
            raise


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


def _input(typed: str) -> tuple[str, Json]:
    name, equals, path = typed.partition("=")
    if not (name and equals and Path(path).exists()):
        problem = f"--input {typed}: allowed: ID=PATH of a file or directory that exists"
        raise Problem(problem, ExitCode.USAGE)
    return name, path
