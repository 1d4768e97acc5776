"""Commands that write checkpoints as files of other tools, and begin operations from such files."""

import tempfile
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from trainops.cli import local_files, looks, submission
from trainops.cli.following import say_commands, watch_to_the_end
from trainops.cli.operations import Follow
from trainops.cli.session import Session
from trainops.cli.submitting import write_submitted
from trainops.client.api import json_of
from trainops.client.problems import ExitCode, Problem, Refused
from trainops.client.references import checkpoint_named

if TYPE_CHECKING:
    from trainops.client.responses import Event, Operation

MAX_DIGEST_BYTES = 8192
OnDisk = Annotated[Path, typer.Argument(metavar="PATH", show_default=False)]


class Which(StrEnum):
    """Which of a checkpoint's models."""

    BEST = "best"
    LAST = "last"


def export(
    session: Session,
    reference: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="Operation or checkpoint id; also ID:latest, ID:best, ID:best:METRIC.",
            show_default=False,
        ),
    ],
    target: Annotated[Path, typer.Option("--file", "-o", metavar="FILE.ckpt", help="Output file.")],
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="KIND",
            help="File format; only the format of the operation's kind is available (default).",
        ),
    ] = None,
    which: Annotated[
        Which | None,
        typer.Option(
            "--which", help="Latest or best checkpoint; by default the final one, else the latest."
        ),
    ] = None,
    agent: Annotated[
        int | None,
        typer.Option(
            "--agent",
            min=0,
            help="Number of the agent (separate networks only); by default the best one.",
        ),
    ] = None,
) -> None:
    """Export a checkpoint as a file of another tool; by default the final one, else the latest.

    Example: trainops checkpoints export 3f9b3c:best -o best.ckpt
    """
    found, chosen = checkpoint_named(session.api, reference)
    kind = found.split("_")[1]
    if file_format not in (None, kind):
        raise Problem(
            f"{found} can only be exported as {kind}, not as {file_format}", ExitCode.USAGE
        )
    try:
        headers = session.api.download(
            f"operations/{found}/export",
            target,
            checkpoint_id=chosen,
            which=which and which.value,
            agent=agent,
        )
        if digest := headers.get("X-Digest"):
            write_digest(target, digest)
    except OSError as error:
        raise Problem(f"{target}: {error.strerror or error}", ExitCode.USAGE) from error
    size = target.stat().st_size
    checkpoint_id, _, described = headers["X-Checkpoint"].partition("; ")
    if session.out.is_data:
        payload = {
            "file": str(target),
            "format": kind,
            "bytes": size,
            "checkpoint_id": checkpoint_id,
        }
        session.out.data(payload)
    else:
        session.out.text(f"{target}: {kind}, {looks.size(size)}, the {looks.plain(described)}")


def write_digest(file: Path, digest: str) -> None:
    """Write the SHA-256 beside the file, as the other tool of its kind does."""
    file.with_name(f"{file.name}.sha256").write_text(f"{digest}\n")


def digest_of(file: Path) -> dict[str, str]:
    """Return the form's field with the text of the .sha256 beside a file; none if there is none."""
    beside = file.with_name(f"{file.name}.sha256")
    if not beside.exists():
        return {}
    with local_files.opened(beside) as content:
        return {"digest": content.read(MAX_DIGEST_BYTES).decode("ascii", "replace")}


def take_in(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
    described: Annotated[
        Path | None,
        typer.Argument(
            metavar="[OPERATION.yaml]",
            help="Operation file; optional for a trainops checkpoint directory, which "
            "contains its config.",
            show_default=False,
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Override a config field; repeatable."),
    ] = None,
    follow_it: Follow = False,
) -> None:
    """Submit the operation of a YAML file, starting from a checkpoint file or directory.

    Those are other tools' files and directories, and checkpoints of other installations. Of a
    directory of checkpoints, the newest healthy one is taken; a checkpoint that is a directory is
    sent as one file. A .sha256 beside a file is compared first; a file that it was not written for
    is refused.

    Example: trainops checkpoints import last.pt operation.yaml --follow
    """
    if file.is_dir():
        with tempfile.TemporaryDirectory() as scratch:
            file, content = files_here().sendable(session, file, Path(scratch))
            _submit(session, file, content, described, assignments, follow_it=follow_it)
        return
    _submit(session, file, file, described, assignments, follow_it=follow_it)


def _submit(
    session: Session,
    file: Path,
    sent: Path,
    described: Path | None,
    assignments: list[str] | None,
    *,
    follow_it: bool,
) -> None:
    """Submit it with the content of `sent`, which is called as `file` is."""
    wanted = _wanted(file, described)
    for assignment in assignments or []:
        wanted.assign(assignment)
    try:
        with local_files.opened(sent) as content:
            fields = {"operation": json_of(wanted.body), **digest_of(sent)}
            operation: Operation = session.api.upload(
                "operations/import", content, file.name, fields
            )
    except OSError as error:
        raise Problem(f"{file}: {error.strerror or error}", ExitCode.USAGE) from error
    except Refused as refused:
        raise wanted.explain(refused) from refused
    if not (session.out.is_data and follow_it):
        write_submitted(session, operation)
    events: list[Event] = session.api.get(f"operations/{operation['id']}/events")
    for each in events:
        if each["what"] == "IMPORTED":
            session.out.note(f"Imported {looks.plain(each['note'])}")
    say_commands(session, operation["id"])
    if follow_it:
        watch_to_the_end(session, operation["id"])


def _wanted(file: Path, described: Path | None) -> submission.Submission:
    """Return what the YAML file describes, or what the checkpoint itself says it was."""
    if described is not None:
        return submission.read(described)
    if file.is_dir() and (held := files_here().held(file)):
        return submission.Submission(held, str(file))
    raise Problem(f"{file} has no config: OPERATION.yaml is required", ExitCode.USAGE)


def weights(
    session: Session,
    path: OnDisk,
    target: Annotated[
        Path, typer.Option("--file", "-o", metavar="FILE.safetensors", help="Output file.")
    ],
    which: Annotated[
        Which | None,
        typer.Option(
            help="Model to write; by default the best, else the last.", show_default=False
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="Monitored metric by which the model is the best; by default monitor.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write one model of a checkpoint as safetensors.

    Example: trainops checkpoints weights last.pt -o model.safetensors --which last
    """
    if metric is not None and which is Which.LAST:
        raise Problem("--metric names a best model; allowed with --which best", ExitCode.USAGE)
    files_here().weights(session, path, target, which and which.value, metric)


def files_here() -> ModuleType:
    """Return the commands' halves that read files: they need torch, which takes seconds."""
    return import_module("trainops.cli.files")
