"""Commands on checkpoints: list, show, verify, compare."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainops.cli import exchange, looks
from trainops.cli.checkpoint_changes import gc, pin, recover, rm, unpin
from trainops.cli.exchange import OnDisk, files_here
from trainops.cli.session import Session, command
from trainops.cli.tables import Text
from trainops.cli.type_names import WordedGroup
from trainops.client.problems import ExitCode, Problem
from trainops.client.references import checkpoint_path, operation_id
from trainops.client.responses import (
    Checkpoint,
    CheckpointDetail,
    Verification,
)

if TYPE_CHECKING:
    from trainops.client.api import RowPage

Place = Annotated[
    str,
    typer.Argument(
        metavar="ID|PATH",
        help="Operation id, checkpoint id, or a path to a checkpoint directory or a file "
        "of another tool. Paths need no server.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the group `checkpoints`."""
    group = typer.Typer(
        cls=WordedGroup,
        no_args_is_help=True,
        help="List, inspect, verify, compare and delete checkpoints.\n\n"
        "Example: trainops checkpoints ls 3f9b3c",
    )
    for name, function in (
        ("ls", ls),
        ("show", show),
        ("verify", verify),
        ("diff", diff),
        ("weights", exchange.weights),
        ("pin", pin),
        ("unpin", unpin),
        ("rm", rm),
        ("recover", recover),
        ("gc", gc),
        ("export", exchange.export),
        ("import", exchange.take_in),
    ):
        command(group, name)(function)
    app.add_typer(group, name="checkpoints", rich_help_panel="Checkpoints")


def ls(
    session: Session,
    reference: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]", help="Only checkpoints of this operation.", show_default=False
        ),
    ] = None,
    older_than_days: Annotated[float | None, typer.Option(min=0)] = None,
    limit: Annotated[int, typer.Option(min=1, max=500)] = 50,
) -> None:
    """List checkpoints, latest first.

    Example: trainops checkpoints ls 3f9b3c
    """
    page: RowPage[Checkpoint] = session.api.rows(
        "checkpoints",
        operation_id=operation_id(session.api, reference) if reference else None,
        older_than_days=older_than_days,
        limit=limit,
    )
    if session.out.is_data:
        session.out.data(page.rows)
        return
    if not page.rows:
        session.out.note("No checkpoints.")
        return
    session.out.table(
        ["CHECKPOINT", "TYPE", "STEP", "METRIC", "SIZE", "NEW", "HEALTH", "KEPT", "CREATED"],
        ([looks.cell(row["checkpoint_id"]), *_cells(row)] for row in page.rows),
        narrow=["CHECKPOINT", "STEP", "HEALTH"],
    )
    if page.has_more:
        session.out.note(f"There are more: --limit {min(limit * 5, 500)}")


def _cells(row: Checkpoint) -> list[Text]:
    kept = [
        word for word, is_true in (("pinned", row["pinned"]), ("best", row["is_best"])) if is_true
    ]
    kept += [f"best {metric}" for metric in row.get("best_of", [])]
    return [
        looks.cell(row["checkpoint_type"]),
        looks.cell(row["step"]),
        looks.cell(None if row["metric"] is None else looks.number(row["metric"])),
        looks.cell(looks.size(row["artifacts_size_bytes"])),
        looks.cell(looks.size(row["counted_size_bytes"])),
        looks.state(row["health"]),
        looks.cell(", ".join(kept)),
        looks.cell(looks.ago(row["created_at"])),
    ]


def show(session: Session, reference: Place) -> None:
    """Show a checkpoint's keys with types, shapes and bytes. Nothing in a file is executed.

    Example: trainops checkpoints show 3f9b3c:best
    """
    if path := _on_disk(reference):
        files_here().show(session, path)
        return
    checkpoint: CheckpointDetail = session.api.get(checkpoint_path(session.api, reference))
    if session.out.is_data:
        session.out.data(checkpoint)
        return
    session.out.table(
        ["FILE", "BYTES", "BLAKE3"],
        (
            [looks.cell(each["name"]), looks.cell(f"{each['size_bytes']:,}"), each["blake3"]]
            for each in checkpoint["artifacts"]
        ),
        narrow=["FILE", "BYTES"],
    )
    if signature := checkpoint.get("signature"):
        by = f", {checkpoint['signed_by']}" if checkpoint.get("signed_by") else ""
        session.out.note(f"Signature: {signature}{by}")
    session.out.table(
        ["KEY", "VALUE"],
        ([looks.cell(key), looks.words(value)] for key, value in checkpoint["state"].items()),
        elastic="VALUE",
    )


def verify(
    session: Session,
    reference: Place,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 also for warnings.")
    ] = False,
) -> None:
    """Verify every byte and run all checks; exit with 1 if any check fails.

    Example: trainops checkpoints verify 3f9b3c --strict
    """
    if path := _on_disk(reference):
        files_here().verify(session, path, strict=strict)
        return
    is_one = any(mark in reference for mark in "-:")
    checkpoint_ids = [reference] if is_one else _checkpoint_ids(session, reference)
    answers: list[Verification] = [
        session.api.post(f"{checkpoint_path(session.api, each)}/verify") for each in checkpoint_ids
    ]
    if session.out.is_data:
        session.out.data(answers[0] if is_one else answers)
    else:
        session.out.table(
            ["CHECKPOINT", "HEALTH", "CHECKS", "WHAT"],
            (
                [
                    looks.cell(answer["checkpoint_id"]),
                    looks.state(answer["health"]),
                    looks.cell(answer["level"]),
                    looks.words(_what(answer)),
                ]
                for answer in answers
            ),
            elastic="WHAT",
        )
    allowed = ("ok",) if strict else ("ok", "warning")
    if wrong := [_what(answer) for answer in answers if answer["level"] not in allowed]:
        raise Problem("; ".join(wrong))


def _what(answer: Verification) -> str:
    """Return the message, and after it each warning."""
    warnings = [each["detail"] for each in answer["checks"] if each["level"] == "warning"]
    return " ".join([answer["message"], *warnings])


def diff(session: Session, one: OnDisk, other: OnDisk) -> None:
    """Compare two checkpoints: keys that only one has, and differences of tensors.

    Exit code 1 if anything does.

    Example: trainops checkpoints diff last.pt best.pt
    """
    files_here().diff(session, one, other)


def _checkpoint_ids(session: Session, reference: str) -> list[str]:
    """Return the ids of all checkpoints of an operation. Raises Problem where there are none."""
    found = operation_id(session.api, reference)
    page: RowPage[Checkpoint] = session.api.rows("checkpoints", operation_id=found, limit=500)
    if not page.rows:
        raise Problem(f"{found} has no checkpoints.", ExitCode.NOT_FOUND)
    return [row["checkpoint_id"] for row in page.rows]


def _on_disk(reference: str) -> Path | None:
    """Return the path, if it is one: it has a slash, or is a file or a checkpoint here.

    A slash in the metric of `ID:best:METRIC` makes no path.
    """
    path = Path(reference)
    is_here = path.is_file() or (path / "manifest.json").is_file()
    has_slash = os.sep in reference.partition(":best:")[0]
    return path if has_slash or (reference and is_here) else None
