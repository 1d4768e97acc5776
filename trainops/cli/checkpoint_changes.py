"""Commands that keep, delete and recover checkpoints: pin, unpin, rm, recover, gc."""

from typing import Annotated

import typer

from trainops.cli import looks
from trainops.cli.operations import confirm
from trainops.cli.session import Session
from trainops.client.references import checkpoint_named, checkpoint_path, operation_id
from trainops.client.responses import (
    Cleanup,
    Message,
    Recovery,
)
from trainops.paths import COMMAND

CheckpointId = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT",
        help="Checkpoint id, ID:latest, ID:best or ID:best:METRIC; "
        "ID if the operation has exactly one checkpoint.",
        show_default=False,
    ),
]
Deleted = Annotated[
    str, typer.Argument(metavar="ID", help="Operation or checkpoint id.", show_default=False)
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]


def pin(session: Session, checkpoint_id: CheckpointId) -> None:
    """Pin a checkpoint: retention and cleanup keep it.

    Example: trainops checkpoints pin 3f9b3c:best
    """
    _pin(session, checkpoint_id, "pin", "Pinned: the checkpoint is kept until it is unpinned.")


def unpin(session: Session, checkpoint_id: CheckpointId) -> None:
    """Unpin a checkpoint: retention and cleanup may delete it.

    Example: trainops checkpoints unpin 3f9b3c:best
    """
    _pin(session, checkpoint_id, "unpin", "Unpinned: retention may delete the checkpoint.")


def _pin(session: Session, checkpoint_id: str, verb: str, message: str) -> None:
    answer = session.api.post(f"{checkpoint_path(session.api, checkpoint_id)}/{verb}")
    if session.out.is_data:
        session.out.data(answer)
    else:
        session.out.text(message)


def rm(session: Session, reference: Deleted, yes: Yes = False) -> None:
    """Delete one checkpoint, or all checkpoints of an operation.

    Final and pinned checkpoints of an operation are kept: delete them one by one.

    Example: trainops checkpoints rm 3f9b3c --yes
    """
    operation, chosen = checkpoint_named(session.api, reference)
    if chosen is not None:
        path, what = f"checkpoints/{operation}/{chosen}", reference
    else:
        path = f"checkpoints/{operation}"
        what = f"the checkpoints of {operation} except final and pinned ones"
    confirm(session, f"Delete {what}?", yes)
    answer: Message = session.api.delete(path)
    if session.out.is_data:
        session.out.data(answer)
    else:
        session.out.text(looks.plain(answer["message"]))


def recover(
    session: Session,
    reference: Annotated[
        str, typer.Argument(metavar="ID", help="Operation id.", show_default=False)
    ],
) -> None:
    """Record checkpoints that are newer than a database restored from a backup.

    Every byte of the checkpoints is verified first. The operation must not be running.

    Example: trainops checkpoints recover 3f9b3c
    """
    operation = operation_id(session.api, reference)
    answer: Recovery = session.api.post(f"operations/{operation}/recovery")
    if session.out.is_data:
        session.out.data(answer)
    else:
        session.out.text(looks.plain(answer["message"]))
        if answer["checkpoint_ids"]:
            session.out.note(f"Resume: {COMMAND} resume {operation}")


def gc(
    session: Session,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Report what would be deleted, and delete nothing.")
    ] = False,
    older_than_days: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Minimum age in days; by default TRAINOPS_CHECKPOINT_MAX_AGE_DAYS.",
            show_default=False,
        ),
    ] = None,
    empty_trash: Annotated[
        bool,
        typer.Option(
            "--empty-trash", help="Delete complete checkpoints without a database row immediately."
        ),
    ] = False,
    yes: Yes = False,
) -> None:
    """Delete old checkpoints of finished operations, and files without a database row.

    Pinned and final checkpoints are kept.

    Example: trainops checkpoints gc --older-than-days 30 --dry-run
    """
    wanted = {"older_than_days": older_than_days, "empty_trash": empty_trash}
    payload: Cleanup = session.api.post("checkpoints/cleanup", {**wanted, "dry_run": True})
    if not dry_run and (payload["num_checkpoints"] or payload["num_unowned"]):
        confirm(session, f"{_freed(payload, 'Delete')}?", yes)
        payload = session.api.post("checkpoints/cleanup", {**wanted, "dry_run": False})
    if session.out.is_data:
        session.out.data(payload)
    else:
        session.out.text(f"{_freed(payload, 'Would delete' if payload['dry_run'] else 'Deleted')}.")


def _freed(payload: Cleanup, verb: str) -> str:
    trash = payload["num_trashed"]
    later = (
        f"; {trash} complete checkpoints without a database row will be deleted later"
        if trash
        else ""
    )
    return (
        f"{verb} {payload['num_checkpoints']} checkpoints and {payload['num_unowned']} directories "
        f"without a database row, {looks.size(payload['freed_bytes'])}{later}"
    )
