"""The command that makes operations of runs that other tools logged."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from trainops.cli import looks
from trainops.cli.operations import PANEL
from trainops.cli.session import Session, command
from trainops.client.api import json_of
from trainops.client.problems import ExitCode, Problem, Refused
from trainops.sinks.foreign_runs import ForeignRun, RunUnreadable
from trainops.sinks.reading import TOOLS, FoundRun, runs_below


def register(app: typer.Typer) -> None:
    """Add the command `import-runs`."""
    command(app, "import-runs", panel=PANEL)(import_runs)


def import_runs(
    session: Session,
    directory: Annotated[Path, typer.Argument(metavar="DIR", show_default=False)],
    tool: Annotated[
        str,
        typer.Option("--from", metavar="TOOL", help=f"Only runs of {', '.join(TOOLS)}."),
    ] = "",
    tags: Annotated[
        list[str] | None, typer.Option("--tag", help="Further tag of the operations; repeatable.")
    ] = None,
    is_dry: Annotated[
        bool, typer.Option("--dry-run", help="List what would be imported; import nothing.")
    ] = False,
) -> None:
    """Create a finished operation for each run of TensorBoard, MLflow or W&B below a directory.

    It has the curves, parameters, tags and times of the run, and cannot be resumed. A run that was
    imported before is not imported again. Nothing in the directory is executed or changed.

    Example: trainops import-runs mlruns --tag from-mlflow
    """
    if tool not in ("", *TOOLS):
        problem = f"--from: got {tool!r}; allowed: {', '.join(TOOLS)}"
        raise Problem(problem, ExitCode.USAGE)
    rows = list(_imported(session, directory, tool, tags or [], is_dry=is_dry))
    if not rows:
        named = f"of {tool}" if tool else "of TensorBoard, MLflow or Weights & Biases"
        raise Problem(f"{directory} has no runs {named}", ExitCode.NOT_FOUND)
    if session.out.is_data:
        session.out.data(rows)
    if failed := sum(row["status"] == "failed" for row in rows):
        raise Problem(f"{failed} of {len(rows)} runs were not imported")


def _imported(
    session: Session, directory: Path, tool: str, tags: list[str], *, is_dry: bool
) -> Iterator[dict[str, object]]:
    try:
        for found in runs_below(directory, tool):
            row = _import(session, found, tags, is_dry=is_dry)
            if not session.out.is_data:
                session.out.text(looks.plain(_line(row)))
            yield row
    except OSError as error:
        raise Problem(f"{directory}: {error.strerror or error}", ExitCode.USAGE) from error


def _import(
    session: Session, found: FoundRun, tags: list[str], *, is_dry: bool
) -> dict[str, object]:
    row: dict[str, object] = {"path": str(found.path), "tool": found.tool}
    try:
        run = found.read()
        row |= {"name": run.name, "points": run.num_points, "notes": run.all_notes(tags)}
        if not run.num_points:
            return row | {"status": "failed", "problem": "it has no points"}
        if is_dry:
            return row | {"status": "found"}
        return row | _send(session, run, tags)
    except (RunUnreadable, Refused) as problem:
        return row | {"status": "failed", "problem": str(problem)}
    except OSError as error:
        return row | {"status": "failed", "problem": error.strerror or str(error)}


def _send(session: Session, run: ForeignRun, tags: list[str]) -> dict[str, object]:
    with tempfile.TemporaryFile() as file:
        for line in run.lines():
            file.write(line.encode())
        file.seek(0)
        fields = {"run": json_of(run.described(tags))}
        operation, is_new = session.api.upload_and_wait(
            "operations/import-run", file, "points", fields
        )
    return {"status": "imported" if is_new else "known", "id": operation["id"]}


def _line(row: dict[str, object]) -> str:
    notes = row.get("notes", [])
    more = "".join(f"; {each}" for each in notes) if isinstance(notes, list) else ""
    match row["status"]:
        case "failed":
            return f"{row['path']}: not imported: {row['problem']}{more}"
        case "found":
            return f"{row['path']}: {row['name']}, {row['points']:,} points{more}"
        case "known":
            return f"{row['path']}: imported before as {row['id']}{more}"
    return f"{row['path']}: imported as {row['id']}, {row['points']:,} points{more}"
