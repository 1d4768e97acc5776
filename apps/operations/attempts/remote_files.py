"""Files of checkpoints uploaded by workers over HTTP; `remote_commits` commits them.

The files go where a child of this installation would write them, and count for nothing before the
commit: what a worker leaves half done, the clean-up removes.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from django.db import transaction

from apps.checkpoints import place, storage
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.owners import owners
from apps.operations.errors import NotAllowed, StorageUnavailable
from apps.operations.models import Operation
from apps.operations.scheduling import claims
from trainops.errors import DomainError
from trainops.runtime.checkpoint.durable import (
    DurableFile,
    require_space,
)
from trainops.runtime.checkpoint.manifest import (
    ARTIFACT_NAME,
    MANIFEST,
    STATE,
    Artifact,
    CheckpointType,
)

CHUNK_BYTES = 2**20


class FileRefused(DomainError):
    def __init__(self, code: str, message: str, **details: object) -> None:
        super().__init__(code, message, details, status=400)


def open_directory(operation: Operation, *, type: CheckpointType, step: int) -> str:
    """Make the directory of a new checkpoint of this attempt; return its name.

    Raises StorageUnavailable.
    """
    name = f"a{operation.attempt:04d}-s{step:010d}-{type}"
    root = storage.operation_directory(operation.pk)
    try:
        place.require()
        root.mkdir(exist_ok=True)
        for number in range(1, 10_000):
            chosen = name if number == 1 else f"{name}-{number}"
            with suppress(FileExistsError):
                (root / chosen).mkdir()
                return chosen
    except OSError as error:
        raise StorageUnavailable(error) from error
    raise NotAllowed("TOO_MANY_DIRECTORIES", f"There are 10,000 directories {name}.")


def receive(
    operation: Operation, directory: str, name: str, content: BinaryIO, *, size_bytes: int
) -> Artifact:
    """Write one file of a checkpoint that is not committed yet; return what was received.

    Sent again, it takes the place of the earlier one. It gets its name once it is whole, and only
    while the directory is open: what a stalled connection brings late changes nothing.

    Raises FileRefused where it is cut short or late, StorageUnavailable where there is no room,
    Fenced.
    """
    path = opened(operation, directory) / require_name(name)
    draft = path.with_name(f".{name}.{secrets.token_hex(8)}{storage.DRAFT}")
    try:
        require_space(path.parent, size_bytes)
        file = DurableFile(draft, size_bytes)
        try:
            _copy(content, file, size_bytes)
            digest = file.finish()
        finally:
            file.close()
        if file.size_bytes != size_bytes:
            problem = f"{name} has {size_bytes} bytes by its Content-Length; got {file.size_bytes}"
            raise FileRefused("FILE_CUT_SHORT", problem, given=file.size_bytes, expected=size_bytes)
        with locked(operation, directory):
            draft.rename(path)
    except OSError as error:
        raise StorageUnavailable(error) from error
    finally:
        draft.unlink(missing_ok=True)
    return Artifact(name, size_bytes, digest)


@contextmanager
def locked(operation: Operation, directory: str) -> Iterator[None]:
    """Hold the operation's row while a directory is changed. Raises FileRefused, Fenced."""
    with transaction.atomic():
        owners().lock([operation.pk])
        if not Operation.objects.owned(operation.pk, operation.attempt).exists():
            raise claims.Fenced
        opened(operation, directory)
        yield


def _copy(content: BinaryIO, file: DurableFile, size_bytes: int) -> None:
    left = size_bytes
    while left and (chunk := content.read(min(left, CHUNK_BYTES))):
        file.write(chunk)
        left -= len(chunk)


def opened(operation: Operation, directory: str) -> Path:
    """Return the directory, if it is this attempt's and has no manifest. Raises FileRefused.

    The manifest closes it, before its files are verified: from then on they must not change.
    """
    path = f"{operation.pk}/{directory}"
    if not storage.is_artifacts_path(path) or storage.attempt_of(directory) != operation.attempt:
        raise FileRefused(
            "NO_SUCH_DIRECTORY",
            f"{directory[:64]!r} is no directory of attempt {operation.attempt}: open one first.",
            given=directory[:64],
        )
    found = storage.directory(path)
    is_closed = (found / MANIFEST).exists() or Checkpoint.objects.filter(
        artifacts_path=path
    ).exists()
    if is_closed or not found.is_dir():
        raise FileRefused(
            "NO_SUCH_DIRECTORY",
            f"{directory} is not open, or is committed already or just now: open another one.",
            given=directory,
        )
    return found


def require_name(name: str) -> str:
    if not ARTIFACT_NAME.fullmatch(name):
        raise FileRefused(
            "INVALID_NAME",
            f"{name[:64]!r} cannot be a file of a checkpoint; allowed: {STATE}, and NAME.pt with "
            "lower-case letters, digits and underscores",
            given=name[:64],
        )
    return name
