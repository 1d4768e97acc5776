"""Exports of checkpoints as files: each is made once, and kept for a day.

Kept files are in DATA_DIR/exports/OPERATION/KEY; the key is a digest of all that the content
follows from.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from blake3 import blake3
from django.conf import settings

from apps.checkpoints.models import Checkpoint
from apps.datasets.storage import workspace
from apps.operations.files import exchange
from apps.operations.models import Operation

CONTENT, NAME, DIGEST = "content", "name", "content.sha256"
KEPT_SECONDS = 86_400.0
KEPT_BYTES = 4 * 2**30


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """`file` stays readable when the kept copy is removed.

    `digest` is its SHA-256 in hexadecimal where the other tool has one beside the file; else empty.
    """

    file: BinaryIO
    name: str
    digest: str = ""


def export(
    checkpoint: Checkpoint,
    *,
    person: str,
    which: str = "last",
    agent: int | None = None,
    is_packed: bool = False,
) -> ExportedFile:
    """Return a checkpoint as a file of the other tool of its kind; a zip with its digest if packed.

    See `exchange.export` for `which` and `agent`. Raises DomainError.
    """

    def write(path: Path) -> str:
        name = exchange.export(checkpoint, path, person=person, which=which, agent=agent)
        if not is_packed:
            return name
        packed = path.with_name("packed.zip")
        packed_name = exchange.pack(path, name, packed)
        packed.replace(path)
        path.with_name(DIGEST).unlink(missing_ok=True)  # it is of the file in the zip
        return packed_name

    request = exchange.export_request(checkpoint, which=which, agent=agent)
    return _made(checkpoint.operation_id, [request, is_packed], write)


def table(checkpoint: Checkpoint, name: str, *, person: str) -> ExportedFile:
    """Return one of the tables that a kind has of its finished operations, as CSV.

    Raises DomainError.
    """

    def write(path: Path) -> str:
        exchange.tabulate(checkpoint, name, path, person=person)
        return f"{name}.csv"

    return _made(checkpoint.operation_id, [name, checkpoint.manifest_digest], write)


def kept(operation_id: str) -> Iterator[ExportedFile]:
    """Yield what is kept of an operation; the caller closes the files."""
    for directory in sorted((_root() / operation_id).glob("*")):
        with suppress(FileNotFoundError):  # removed in this moment
            yield _opened(directory)


def remove(operation_id: str) -> None:
    """Remove what is kept of an operation."""
    shutil.rmtree(_root() / operation_id, ignore_errors=True)


def sweep(*, besides: Path | None = None) -> None:
    """Remove what is a day old, and the oldest of what takes more than 4 GiB in all."""
    kept = []
    for directory in _root().glob("*/*"):
        with suppress(OSError):
            content = (directory / CONTENT).stat()
            kept.append((content.st_mtime, content.st_size, directory))
    num_bytes = 0
    for made_at, size, directory in sorted(kept, reverse=True):
        num_bytes += size
        is_old = time.time() - made_at > KEPT_SECONDS
        if (is_old or num_bytes > KEPT_BYTES) and directory != besides:
            shutil.rmtree(directory, ignore_errors=True)
    for directory in _root().glob("*"):
        with suppress(OSError):  # not empty
            directory.rmdir()


def _made(operation_id: str, origin: list[object], write: Callable[[Path], str]) -> ExportedFile:
    canonical = json.dumps(origin, sort_keys=True)
    target = _root() / operation_id / blake3(canonical.encode()).hexdigest()
    with suppress(FileNotFoundError):
        return _opened(target)
    with workspace() as directory:
        draft = directory / "export"
        draft.mkdir()
        (draft / NAME).write_text(write(draft / CONTENT), encoding="utf-8")
        exported = _opened(draft)
        target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):  # the same was made meanwhile, or it is removed in this moment
            draft.rename(target)
    if not Operation.objects.filter(pk=operation_id).exists():  # deleted or erased meanwhile
        remove(operation_id)
    sweep(besides=target)
    return exported


def _opened(directory: Path) -> ExportedFile:
    name = (directory / NAME).read_text(encoding="utf-8")
    beside = directory / DIGEST
    digest = beside.read_text(encoding="ascii").strip() if beside.exists() else ""
    return ExportedFile((directory / CONTENT).open("rb"), name, digest)


def _root() -> Path:
    return Path(settings.DATA_DIR) / "exports"
