"""Commands for scripts and shells: wait for an operation, its curves, its page, completion."""

import math
import time
import webbrowser
from enum import StrEnum
from importlib import import_module
from typing import Annotated

import typer

from trainops.cli import following, looks
from trainops.cli.app import COMPLETION
from trainops.cli.operations import PANEL, Id
from trainops.cli.out import OutputFormat
from trainops.cli.session import Session, command
from trainops.client import curves
from trainops.client.problems import ExitCode, Problem
from trainops.client.references import operation_id
from trainops.client.responses import Operation


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def register(app: typer.Typer) -> None:
    """Add these commands, in the order of the help."""
    for name, function in (
        ("wait", wait), ("metrics", metrics), ("open", open_page), ("completion", completion),
    ):  # fmt: skip
        command(app, name, panel=PANEL)(function)


def wait(
    session: Session,
    reference: Id,
    timeout: Annotated[
        float | None, typer.Option(min=0, help="Seconds to wait; by default without end.")
    ] = None,
    progress: Annotated[
        float | None,
        typer.Option(min=0, max=100, metavar="PERCENT", help="Wait only until this is reached."),
    ] = None,
) -> None:
    """Wait until an operation is finished; exit with 0 only if it COMPLETED.

    Example: trainops wait 3f9b3c --timeout 3600 && trainops metrics 3f9b3c --csv > curve.csv
    """
    give_up_at = math.inf if timeout is None else time.monotonic() + timeout
    found = operation_id(session.api.until(give_up_at), reference)
    has_enough = False
    shown = following.states(session.api, found, lost=session.out.note, until=give_up_at)
    for operation in shown:
        is_over = time.monotonic() >= give_up_at
        has_enough = progress is not None and _percent(operation) >= progress
        if operation["status"] in looks.FINISHED or has_enough:
            break
        if is_over:
            raise Problem(f"{found} is still {operation['status']}; it continues.")
    if session.out.is_data:
        session.out.data(operation)
    else:
        session.out.text(operation["status"])
    if operation["status"] == "FAILED":
        raise following.failure(operation)
    if operation["status"] != "COMPLETED" and not has_enough:
        raise typer.Exit(ExitCode.FAILED)


def _percent(operation: Operation) -> float:
    """Return how much is done; nothing while it waits, whatever an attempt before has done."""
    return operation.get("percent") or 0.0 if operation["status"] == "RUNNING" else -1.0


def metrics(
    session: Session,
    reference: Id,
    as_csv: Annotated[bool, typer.Option("--csv", help="The same as -o csv.")] = False,
) -> None:
    """Print the metrics of an operation by step, without points that a resume measured again.

    Example: trainops metrics 3f9b3c --csv > curve.csv
    """
    rows = curves.by_step(curves.pages(session.api, operation_id(session.api, reference)))
    if as_csv:
        session.out.form = OutputFormat.CSV
    session.out.ids_only = False  # steps have no ids
    if session.out.is_data:
        session.out.data(rows)
    else:
        names = list(dict.fromkeys(name for row in rows for name in row))
        cells = ([looks.cell(looks.number(row.get(name, ""))) for name in names] for row in rows)
        if names:
            session.out.table(names, cells)


def open_page(session: Session, reference: Id) -> None:
    """Open the page of an operation in the browser, and print its address.

    Example: trainops open 3f9b3c
    """
    page = session.server.page(operation_id(session.api, reference))
    session.out.text(page)
    webbrowser.open(page)


def completion(
    session: Session, shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.")]
) -> None:
    """Print the script by which a shell completes commands and options.

    Example: trainops completion bash >> ~/.bashrc
    """
    script = import_module("typer.completion").get_completion_script(
        prog_name="trainops", complete_var=COMPLETION, shell=shell.value
    )
    session.out.text(script)
