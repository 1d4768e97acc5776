"""Commands on checkpoints: list, verify, pin, delete."""

from typing import Annotated, Any

import typer

from trainops.cli import looks
from trainops.cli.operations import confirm
from trainops.cli.problems import ExitCode, Problem
from trainops.cli.references import operation_id
from trainops.cli.session import Session, command

CheckpointId = Annotated[str, typer.Argument(metavar="CHECKPOINT", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def register(app: typer.Typer) -> None:
    """Add the group `checkpoints`."""
    group = typer.Typer(no_args_is_help=True, help="List, verify, pin and delete checkpoints.")
    for name, function in (
        ("ls", ls),
        ("verify", verify),
        ("pin", pin),
        ("unpin", unpin),
        ("rm", rm),
    ):
        command(group, name)(function)
    app.add_typer(group, name="checkpoints", rich_help_panel="Saved work")


def ls(
    session: Session,
    reference: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="Only this operation's.", show_default=False),
    ] = None,
    older_than_days: Annotated[float | None, typer.Option(min=0)] = None,
    limit: Annotated[int, typer.Option(min=1, max=500)] = 50,
) -> None:
    """List checkpoints, the newest first."""
    page = session.api.rows(
        "checkpoints",
        operation_id=operation_id(session.api, reference) if reference else None,
        older_than_days=older_than_days,
        limit=limit,
    )
    if session.out.is_json:
        session.out.json(page.rows)
        return
    if not page.rows:
        session.out.note("No checkpoints.")
        return
    session.out.table(
        ["CHECKPOINT", "TYPE", "STEP", "METRIC", "SIZE", "HEALTH", "KEPT", "CREATED"],
        ([looks.cell(row["checkpoint_id"]), *_cells(row)] for row in page.rows),
        narrow=["CHECKPOINT", "STEP", "HEALTH"],
    )
    if page.has_more:
        session.out.note(f"There are more: --limit {min(limit * 5, 500)}")


def _cells(row: dict[str, Any]) -> list[Any]:
    kept = [
        word for word, is_true in (("pinned", row["pinned"]), ("best", row["is_best"])) if is_true
    ]
    return [
        looks.cell(row["checkpoint_type"]),
        looks.cell(row["step"]),
        looks.cell(None if row["metric"] is None else looks.number(row["metric"])),
        looks.cell(looks.size(row["artifacts_size_bytes"])),
        looks.state(row["health"]),
        looks.cell(", ".join(kept)),
        looks.cell(looks.ago(row["created_at"])),
    ]


def verify(session: Session, checkpoint_id: CheckpointId) -> None:
    """Compare every byte of a checkpoint with its manifest; exit code 1 if anything differs."""
    answer = session.api.post(f"{_path(session, checkpoint_id)}/verify")
    if session.out.is_json:
        session.out.json(answer)
    else:
        session.out.text(looks.state(answer["health"]))
    if answer["health"] != "healthy":
        raise Problem(answer["message"])


def pin(session: Session, checkpoint_id: CheckpointId) -> None:
    """Keep a checkpoint for ever."""
    _pin(session, checkpoint_id, "pin", "It is kept until it is unpinned.")


def unpin(session: Session, checkpoint_id: CheckpointId) -> None:
    """Leave a checkpoint to its operation's retention again."""
    _pin(session, checkpoint_id, "unpin", "Retention decides about it again.")


def _pin(session: Session, checkpoint_id: str, verb: str, message: str) -> None:
    answer = session.api.post(f"{_path(session, checkpoint_id)}/{verb}")
    if session.out.is_json:
        session.out.json(answer)
    else:
        session.out.text(message)


def rm(session: Session, checkpoint_id: CheckpointId, yes: Yes = False) -> None:
    """Delete a checkpoint."""
    path = _path(session, checkpoint_id)
    confirm(session, f"Delete {checkpoint_id}?", yes)
    answer = session.api.delete(path)
    if session.out.is_json:
        session.out.json(answer)
    else:
        session.out.text(looks.plain(answer["message"]))


def _path(session: Session, checkpoint_id: str) -> str:
    """Return a checkpoint's address; its operation's id is the front of its own."""
    front, separator, _ = checkpoint_id.partition("-")
    if not separator or "/" in checkpoint_id:
        raise Problem(
            f"{checkpoint_id!r} is no checkpoint's id; `checkpoints ls` names them.",
            ExitCode.NOT_FOUND,
        )
    return f"checkpoints/op_{front.removeprefix('op_')}/{checkpoint_id}"
