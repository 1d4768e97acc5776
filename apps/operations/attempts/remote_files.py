"""Checkpoints uploaded by workers over HTTP: file by file, then one commit.

The files go where a child of this installation would write them, and count for nothing before the
commit: what a worker leaves half done, the clean-up removes.
"""

import os
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from blake3 import blake3
from django.db import transaction

from apps.checkpoints import place, remote, sharing, storage
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.owners import owners
from apps.operations import inputs
from apps.operations.attempts import quota
from apps.operations.attempts.ledger import Ledger
from apps.operations.errors import NotAllowed, StorageUnavailable
from apps.operations.models import Attempt, Operation
from apps.operations.scheduling import claims
from trainops.errors import Refusal
from trainops.kind import KINDS
from trainops.runtime import lossless
from trainops.runtime.checkpoint.durable import (
    DurableFile,
    require_space,
    sync_directory,
    write_whole,
)
from trainops.runtime.checkpoint.manifest import (
    ARTIFACT_NAME,
    FORMAT,
    MANIFEST,
    STATE,
    VERSION,
    Artifact,
    CheckpointType,
    staged,
    verify,
)
from trainops.runtime.errors import CheckpointCorrupted

CHUNK_BYTES = 2**20
MAX_FILES = 1000
MAX_STATE_BYTES = 16 * 2**20


class FileRefused(Refusal):
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
    path = _open(operation, directory) / _named(name)
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
        with _locked(operation, directory):
            draft.rename(path)
    except OSError as error:
        raise StorageUnavailable(error) from error
    finally:
        draft.unlink(missing_ok=True)
    return Artifact(name, size_bytes, digest)


@contextmanager
def _locked(operation: Operation, directory: str) -> Iterator[None]:
    """Hold the operation's row while a directory is changed. Raises FileRefused, Fenced."""
    with transaction.atomic():
        owners().lock([operation.pk])
        if not Operation.objects.owned(operation.pk, operation.attempt).exists():
            raise claims.Fenced
        _open(operation, directory)
        yield


def _copy(content: BinaryIO, file: DurableFile, size_bytes: int) -> None:
    left = size_bytes
    while left and (chunk := content.read(min(left, CHUNK_BYTES))):
        file.write(chunk)
        left -= len(chunk)


def commit(
    operation: Operation,
    directory: str,
    *,
    files: Iterable[Mapping[str, Any]],
    environment: Mapping[str, Any],
) -> Checkpoint:
    """Verify the files, write their manifest, and commit the checkpoint under the fence.

    A file with a `home` was not sent: it is linked from that committed checkpoint of the operation.

    Raises FileRefused, NotAllowed (over the quota), StorageUnavailable, Fenced.
    """
    path = _open(operation, directory)
    is_closed = False
    try:
        place.require()
        artifacts = _artifacts(operation, path, files)
        with _locked(operation, directory):
            for draft in path.glob(f".*{storage.DRAFT}"):
                draft.unlink()  # of uploads that broke, or come too late
            is_closed = True
            digest = _write_manifest(operation, path, artifacts, environment)
        told = staged(verify(path, digest))
        quota.require(operation, told)
        if (bucket := remote.bucket()) is not None:
            bucket.upload(f"{operation.pk}/{directory}", threading.Event())
        ledger = Ledger(operation)
        ledger.from_step = _from_step(operation)
        return ledger.commit(told)
    except CheckpointCorrupted as error:
        _reopen(path, is_closed=is_closed)
        raise FileRefused(
            "CHECKPOINT_CORRUPTED",
            f"What was sent is not what was announced: {error.findings}",
            missing_artifacts=error.missing,
            altered_artifacts=error.altered,
        ) from error
    except FileRefused:
        _reopen(path, is_closed=is_closed)
        raise
    except quota.QuotaExceeded as error:
        storage.remove(f"{operation.pk}/{directory}")
        raise NotAllowed("QUOTA_EXCEEDED", str(error)) from error
    except OSError as error:
        _reopen(path, is_closed=is_closed)
        raise StorageUnavailable(error) from error


def _reopen(path: Path, *, is_closed: bool) -> None:
    """Let files be sent to the directory again, after a commit that closed it and failed."""
    if is_closed:
        with suppress(OSError):
            (path / MANIFEST).unlink(missing_ok=True)


def _open(operation: Operation, directory: str) -> Path:
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


def _named(name: str) -> str:
    if not ARTIFACT_NAME.fullmatch(name):
        raise FileRefused(
            "INVALID_NAME",
            f"{name[:64]!r} cannot be a file of a checkpoint; allowed: {STATE}, and NAME.pt with "
            "lower-case letters, digits and underscores",
            given=name[:64],
        )
    return name


def _artifacts(
    operation: Operation, path: Path, files: Iterable[Mapping[str, Any]]
) -> list[Artifact]:
    """Return the files that are announced; what a checkpoint before has is linked from there.

    Raises FileRefused (HOME_GONE) for what no committed checkpoint has here any more.
    """
    artifacts, gone = [], []
    for file in files:
        artifact = Artifact(_named(file["name"]), file["size_bytes"], file["blake3"])
        if file.get("home"):
            home = _link(operation, path, artifact)
            if home is None and not (path / artifact.name).exists():
                gone.append(artifact.name)
            artifact = replace(artifact, home=home or "")
        artifacts.append(artifact)
    if gone:
        raise FileRefused(
            "HOME_GONE",
            f"No checkpoint has {', '.join(gone)} here any more: send them, and commit again.",
            names=gone,
        )
    return artifacts


def _link(operation: Operation, path: Path, artifact: Artifact) -> str | None:
    """Have the file in the directory from a committed checkpoint; return which one brought it."""
    for earlier in Checkpoint.objects.filter(operation=operation).newest_first():
        for each in sharing.artifacts(earlier.manifest):
            if each != artifact:
                continue
            with suppress(FileNotFoundError):
                if not (path / artifact.name).exists():
                    source = storage.directory(earlier.artifacts_path)
                    os.link(source / artifact.name, path / artifact.name)
                return each.home or earlier.artifacts_path.partition("/")[2]
    return None


def _require_complete(artifacts: list[Artifact]) -> None:
    names = [each.name for each in artifacts]
    if STATE not in names or len(set(names)) < len(names) or len(names) > MAX_FILES:
        problem = f"must name {STATE} and each file once, at most {MAX_FILES}; got {len(names)}"
        raise FileRefused("INVALID_FILES", f"The files of a checkpoint {problem}.")


def _write_manifest(
    operation: Operation, path: Path, artifacts: list[Artifact], environment: Mapping[str, Any]
) -> str:
    attempt, step, type = path.name.split("-")[:3]
    config = KINDS[operation.kind].parse_config(operation.config)
    created_at = datetime.fromtimestamp(time.time(), tz=UTC).isoformat()
    content = lossless.dumps(
        {
            "format": FORMAT,
            "version": VERSION,
            "operation_id": operation.pk,
            "attempt": int(attempt.removeprefix("a")),
            "kind": operation.kind,
            "config_hash": operation.config_hash,
            "config": operation.config,
            "inputs": inputs.digests(config.dataset_ids(), inputs.models_of(operation)),
            "type": type,
            "step": int(step.removeprefix("s")),
            "created_at": created_at,
            "environment": dict(environment),
            "metric": _state(path).get("metric"),
            "artifacts": [asdict(each) for each in artifacts],
        }
    ).encode()
    path.joinpath(f"{MANIFEST}{storage.DRAFT}").unlink(missing_ok=True)  # of a try that was killed
    write_whole(path / MANIFEST, content)
    sync_directory(path.parent)
    return blake3(content).hexdigest()


def _state(path: Path) -> dict[str, Any]:
    """Return the JSON state, if the database can hold it.

    Raises FileRefused, CheckpointCorrupted.
    """
    try:
        with (path / STATE).open("rb") as file:
            content = file.read(MAX_STATE_BYTES + 1)
        if len(content) > MAX_STATE_BYTES:
            raise ValueError(f"it is larger than {MAX_STATE_BYTES} bytes")
        if b"\\u0000" in content:
            raise ValueError("it holds the character U+0000")
        state = lossless.loads(content)
        if not isinstance(state, dict):
            raise ValueError("it is no object of named values")
    except FileNotFoundError:
        raise CheckpointCorrupted(path, missing=[STATE]) from None
    except (ValueError, RecursionError) as error:
        raise FileRefused("INVALID_STATE", f"{STATE} cannot be used: {error}") from error
    return state


def _from_step(operation: Operation) -> int:
    attempt = Attempt.objects.filter(operation=operation, number=operation.attempt)
    return attempt.values_list("from_step", flat=True).first() or 0
