"""Commands on checkpoints: list, look into, verify, compare, pin, delete."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from trainops.cli import exchange, looks
from trainops.cli.exchange import OnDisk, files_here
from trainops.cli.operations import confirm
from trainops.cli.problems import ExitCode, Problem
from trainops.cli.references import checkpoint_named, operation_id
from trainops.cli.session import Session, command
from trainops.paths import COMMAND

CheckpointId = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT", help="Checkpoint id, ID:latest or ID:best.", show_default=False
    ),
]
Deleted = Annotated[
    str, typer.Argument(metavar="ID", help="An operation, or a checkpoint.", show_default=False)
]
Place = Annotated[
    str,
    typer.Argument(
        metavar="ID|PATH",
        help="An operation, a checkpoint, or a path: a checkpoint's directory, or another tool's "
        "file. Paths need no server.",
        show_default=False,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def register(app: typer.Typer) -> None:
    """Add the group `checkpoints`."""
    group = typer.Typer(no_args_is_help=True, help="Saved work: look into it, verify, compare.")
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
        ["CHECKPOINT", "TYPE", "STEP", "METRIC", "SIZE", "NEW", "HEALTH", "KEPT", "CREATED"],
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
        looks.cell(looks.size(row["counted_size_bytes"])),
        looks.state(row["health"]),
        looks.cell(", ".join(kept)),
        looks.cell(looks.ago(row["created_at"])),
    ]


def show(session: Session, reference: Place) -> None:
    """Show a checkpoint's keys with types, shapes and bytes. Nothing in a file is executed."""
    if path := _on_disk(reference):
        files_here().show(session, path)
        return
    checkpoint = session.api.get(_path(session, reference))
    if session.out.is_json:
        session.out.json(checkpoint)
        return
    session.out.table(
        ["FILE", "BYTES", "BLAKE3"],
        (
            [looks.cell(each["name"]), looks.cell(f"{each['size_bytes']:,}"), each["blake3"]]
            for each in checkpoint["artifacts"]
        ),
        narrow=["FILE", "BYTES"],
    )
    session.out.table(
        ["KEY", "VALUE"],
        ([looks.cell(key), looks.words(value)] for key, value in checkpoint["state"].items()),
        elastic="VALUE",
    )


def verify(
    session: Session,
    reference: Place,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 for warnings, too.")
    ] = False,
) -> None:
    """Read every byte and check all that can be checked; exit code 1 if anything is wrong."""
    if path := _on_disk(reference):
        files_here().verify(session, path, strict=strict)
        return
    is_one = any(mark in reference for mark in "-:")
    checkpoint_ids = [reference] if is_one else _checkpoint_ids(session, reference)
    answers = [session.api.post(f"{_path(session, each)}/verify") for each in checkpoint_ids]
    if session.out.is_json:
        session.out.json(answers[0] if is_one else answers)
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


def _what(answer: dict[str, Any]) -> str:
    """Return the message, and after it each warning."""
    warnings = [each["detail"] for each in answer["checks"] if each["level"] == "warning"]
    return " ".join([answer["message"], *warnings])


def diff(session: Session, one: OnDisk, other: OnDisk) -> None:
    """Say which keys only one of two checkpoints has, and by how much tensors differ.

    Exit code 1 if anything does.
    """
    files_here().diff(session, one, other)


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


def rm(session: Session, reference: Deleted, yes: Yes = False) -> None:
    """Delete a checkpoint, or the checkpoints of an operation.

    The final checkpoint and pinned ones of an operation are kept: delete them one by one.
    """
    operation, chosen = checkpoint_named(session.api, reference)
    if chosen is not None:
        path, what = f"checkpoints/{operation}/{chosen}", reference
    else:
        path = f"checkpoints/{operation}"
        what = f"the checkpoints of {operation} except final and pinned ones"
    confirm(session, f"Delete {what}?", yes)
    answer = session.api.delete(path)
    if session.out.is_json:
        session.out.json(answer)
    else:
        session.out.text(looks.plain(answer["message"]))


def recover(
    session: Session,
    reference: Annotated[
        str, typer.Argument(metavar="ID", help="An operation.", show_default=False)
    ],
) -> None:
    """Record checkpoints that are newer than a database restored from a backup.

    Every byte of the checkpoints is verified first. The operation must not be running.
    """
    operation = operation_id(session.api, reference)
    answer = session.api.post(f"operations/{operation}/recovery")
    if session.out.is_json:
        session.out.json(answer)
    else:
        session.out.text(looks.plain(answer["message"]))
        if answer["checkpoint_ids"]:
            session.out.note(f"Resume it: {COMMAND} resume {operation}")


def gc(
    session: Session,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    older_than_days: Annotated[
        float | None,
        typer.Option(min=0, help="Else the installation's own age.", show_default=False),
    ] = None,
    empty_trash: Annotated[
        bool,
        typer.Option(
            "--empty-trash", help="Delete complete checkpoints without a row now, without delay."
        ),
    ] = False,
    yes: Yes = False,
) -> None:
    """Delete old checkpoints of finished operations, and files that belong to none.

    Pinned ones and results stay.
    """
    wanted = {"older_than_days": older_than_days, "empty_trash": empty_trash}
    told = session.api.post("checkpoints/cleanup", {**wanted, "dry_run": True})
    if not dry_run and (told["num_checkpoints"] or told["num_unowned"]):
        confirm(session, f"{_freed(told, 'Delete')}?", yes)
        told = session.api.post("checkpoints/cleanup", {**wanted, "dry_run": False})
    if session.out.is_json:
        session.out.json(told)
    else:
        session.out.text(f"{_freed(told, 'Would delete' if told['dry_run'] else 'Deleted')}.")


def _freed(told: dict[str, Any], verb: str) -> str:
    trash = told["num_trashed"]
    later = f"; {trash} complete checkpoints without a row are deleted later" if trash else ""
    return (
        f"{verb} {told['num_checkpoints']} checkpoints and {told['num_unowned']} directories that "
        f"no checkpoint owns, {looks.size(told['freed_bytes'])}{later}"
    )


def _path(session: Session, reference: str) -> str:
    """Return a checkpoint's address. Raises Problem where none is named."""
    found, chosen = checkpoint_named(session.api, reference) if "/" not in reference else ("", None)
    if chosen is None:
        raise Problem(
            f"got {reference!r}; allowed: a checkpoint id (see `checkpoints ls`), or ID:latest or "
            "ID:best with the id of an operation.",
            ExitCode.NOT_FOUND,
        )
    return f"checkpoints/{found}/{chosen}"


def _checkpoint_ids(session: Session, reference: str) -> list[str]:
    """Return the ids of all checkpoints of an operation. Raises Problem where there are none."""
    found = operation_id(session.api, reference)
    rows = session.api.rows("checkpoints", operation_id=found, limit=500).rows
    if not rows:
        raise Problem(f"{found} has no checkpoints.", ExitCode.NOT_FOUND)
    return [row["checkpoint_id"] for row in rows]


def _on_disk(reference: str) -> Path | None:
    """Return the path, if it is one: it has a slash, or is a file or a checkpoint here."""
    path = Path(reference)
    is_here = path.is_file() or (path / "manifest.json").is_file()
    return path if os.sep in reference or (reference and is_here) else None
