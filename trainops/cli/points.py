"""The command that writes the metric points of an operation as files of other tools."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from trainops.cli import looks
from trainops.cli.operations import PANEL, Id
from trainops.cli.session import Session, command
from trainops.client import curves
from trainops.client.api import Api
from trainops.client.problems import ExitCode, Problem
from trainops.client.references import operation_id
from trainops.client.responses import Operation
from trainops.sinks import known
from trainops.sinks.details import Details, SinkPoint


def register(app: typer.Typer) -> None:
    """Add the command `export-points`."""
    command(app, "export-points", panel=PANEL)(export_points)


def export_points(
    session: Session,
    reference: Id,
    sink: Annotated[
        str, typer.Option("--to", metavar="TOOL", help=f"Tool: {', '.join(known.SINKS)}.")
    ],
    directory: Annotated[
        Path,
        typer.Option(
            "--directory",
            metavar="DIR",
            help="Log directory (tensorboard), file store (mlflow) or directory of offline runs"
            " (wandb); created if missing.",
        ),
    ],
) -> None:
    """Write the metrics and the config of an operation for another tool.

    Earlier files of the operation in the directory are replaced. Points that a resume measured
    again are left out.

    Example: trainops export-points 3f9b3c --to tensorboard --directory runs
    """
    found = operation_id(session.api, reference)
    try:
        known.require(sink, "--to")
        operation: Operation = session.api.get(f"operations/{found}")
        counted = Counted(session.api, found)
        known.write(sink, directory, _details(operation), counted.pages())
    except ValueError as error:
        raise Problem(str(error), ExitCode.USAGE) from error
    except OSError as error:
        raise Problem(f"{directory}: {error.strerror or error}", ExitCode.USAGE) from error
    if session.out.is_data:
        session.out.data({"directory": str(directory), "tool": sink, "points": counted.num_points})
    else:
        session.out.text(f"{looks.plain(directory)}: {counted.num_points} points of {found}")


class Counted:
    """Reads the points of an operation that stand, and counts them."""

    def __init__(self, api: Api, operation_id: str) -> None:
        self.num_points = 0
        self._api, self._id = api, operation_id

    def pages(self) -> Iterator[Sequence[SinkPoint]]:
        """Yield the points. Raises PointsChanged after the last page if a resume began."""
        for page in curves.pages(self._api, self._id):
            self.num_points += len(page)
            yield [
                SinkPoint(each.name, each.step, each.value, datetime.fromisoformat(each.at))
                for each in page
            ]


def _details(operation: Operation) -> Details:
    is_finished = operation["state"] in looks.FINISHED
    finished_at = operation.get("finished_at") if is_finished else None
    return Details(
        id=operation["id"],
        name=operation["name"],
        kind=operation["kind"],
        owner=operation.get("owner") or "",
        state=operation["state"],
        config=operation.get("config", {}),
        started_at=datetime.fromisoformat(operation.get("started_at") or operation["created_at"]),
        finished_at=datetime.fromisoformat(finished_at) if finished_at else None,
    )
