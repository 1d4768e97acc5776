"""The commands that show numbers about the whole installation."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from trainops.cli import looks
from trainops.cli.out import OutputFormat
from trainops.cli.session import Session, command
from trainops.cli.tables import Text

if TYPE_CHECKING:
    from trainops.client.responses import KindStatistics, Statistics, WeeklyUsage

STATES = ("PENDING", "RUNNING", "RESUMING", "COMPLETED", "FAILED", "CANCELLED")
PANEL = "Catalogue"
MAX_WEEKS = 104


class By(StrEnum):
    """What the usage report is grouped by."""

    PROJECT = "project"
    OWNER = "owner"
    KIND = "kind"


def register(app: typer.Typer) -> None:
    """Add these commands."""
    command(app, "stats", panel=PANEL)(stats)
    command(app, "usage", panel=PANEL)(usage)


def stats(session: Session) -> None:
    """Show operations by state and kind, slots in use, storage, and hours of the last 7 days.

    COMPUTE counts the time of each process of an attempt, GPU that of each GPU. With -o csv: a row
    for each kind.

    Example: trainops stats
    """
    found: Statistics = session.api.get("stats")
    if session.out.is_data:
        is_csv = session.out.form is OutputFormat.CSV
        session.out.data(found["kinds"] if is_csv else found)
        return
    kinds = found["kinds"]
    hours = f"{found['days']} D"
    rows = [_row(each["kind"], [each]) for each in kinds]
    session.out.table(
        ["KIND", *STATES, "CHECKPOINTS", "STORAGE", f"COMPUTE {hours}", f"GPU {hours}"],
        [*rows, _row("all", kinds)],
        narrow=["KIND", "RUNNING", "COMPLETED", "FAILED", "STORAGE", f"COMPUTE {hours}"],
    )
    session.out.text("")
    workers = found["workers"]
    present = [f"{number} {status}" for status, number in workers["statuses"].items() if number]
    datasets = found["datasets"]
    session.out.pairs(
        (
            ("slots", f"{workers['num_running']} of {workers['num_slots']} in use"),
            ("workers", ", ".join(present) or "none"),
            ("datasets", f"{datasets['num_datasets']}, {looks.size(datasets['size_bytes'])}"),
        )
    )


def usage(
    session: Session,
    by: Annotated[By, typer.Option(help="Grouping of the rows.")] = By.PROJECT,
    weeks: Annotated[
        int, typer.Option(min=1, max=MAX_WEEKS, help="Number of weeks, with the current one.")
    ] = 8,
) -> None:
    """Show the compute and GPU hours of each week, by project, owner or kind.

    COMPUTE counts the time of each process of an attempt, GPU that of each GPU. Weeks begin on
    Monday, in UTC.

    Example: trainops usage --by owner --weeks 4 -o csv
    """
    found: WeeklyUsage = session.api.get("usage", by=by.value, weeks=weeks)
    if session.out.is_data:
        session.out.data(found["rows"])
        return
    if not found["rows"]:
        session.out.note("Nothing was computed in these weeks.")
        return
    session.out.table(
        ["WEEK OF", found["by"].upper(), "ATTEMPTS", "COMPUTE", "GPU"],
        [
            [
                looks.cell(each["week"]),
                looks.cell(each["name"] or f"no {found['by']}"),
                _count(each["num_attempts"]),
                _hours(each["compute_hours"]),
                _hours(each["gpu_hours"]),
            ]
            for each in found["rows"]
        ],
    )


def _row(name: str, kinds: "list[KindStatistics]") -> list[Text | str]:
    return [
        looks.cell(name),
        *(_count(sum(each["states"].get(state, 0) for each in kinds)) for state in STATES),
        _count(sum(each["num_checkpoints"] for each in kinds)),
        looks.size(sum(each["checkpoint_bytes"] for each in kinds)),
        _hours(sum(each["compute_hours"] for each in kinds)),
        _hours(sum(each["gpu_hours"] for each in kinds)),
    ]


def _count(number: int) -> str:
    return str(number or looks.DASH)


def _hours(hours: float) -> str:
    return f"{hours:.1f} h" if hours else looks.DASH
