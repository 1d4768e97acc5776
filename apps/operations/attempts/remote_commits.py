"""Commit checkpoints uploaded by workers over HTTP, whose files `remote_files` received."""

import os
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict

from blake3 import blake3

from apps.checkpoints import place, remote, sharing, signatures, storage
from apps.checkpoints.models import Checkpoint
from apps.operations import inputs
from apps.operations.attempts import quota
from apps.operations.attempts.remote_files import FileRefused, locked, opened, require_name
from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.errors import NotAllowed, StorageUnavailable
from apps.operations.models import Attempt, Operation
from trainops.kind import KINDS
from trainops.runtime import lossless
from trainops.runtime.checkpoint.durable import (
    sync_directory,
    write_whole,
)
from trainops.runtime.checkpoint.manifest import (
    FORMAT,
    MANIFEST,
    STATE,
    VERSION,
    Artifact,
    staged,
    verify,
)
from trainops.runtime.errors import CheckpointCorrupted

MAX_FILES = 1000
MAX_STATE_BYTES = 16 * 2**20


class SentFile(TypedDict):
    """A file of a checkpoint, as SentFileSerializer validates it."""

    name: str
    size_bytes: int
    blake3: str
    home: str  # empty: it was sent


def commit(
    operation: Operation,
    directory: str,
    *,
    files: Iterable[SentFile],
    environment: Mapping[str, object],
) -> Checkpoint:
    """Verify the files, write their manifest, and commit the checkpoint under the fence.

    A file with a `home` was not sent: it is linked from that committed checkpoint of the operation.

    Raises FileRefused, NotAllowed (over the quota), StorageUnavailable, Fenced.
    """
    path = opened(operation, directory)
    is_closed = False
    try:
        place.require()
        artifacts = _artifacts(operation, path, files)
        _require_complete(artifacts)
        with locked(operation, directory):
            for draft in path.glob(f".*{storage.DRAFT}"):
                draft.unlink()  # of uploads that broke, or come too late
            is_closed = True
            digest = _write_manifest(operation, path, artifacts, environment)
            signatures.write(f"{operation.pk}/{directory}", digest)
        checkpoint = staged(verify(path, digest))
        quota.require(operation, checkpoint)
        if (bucket := remote.bucket()) is not None:
            bucket.upload(f"{operation.pk}/{directory}", threading.Event())
        writer = ReportWriter.continued(operation)
        writer.from_step = _from_step(operation)
        committed = writer.commit(checkpoint)
        writer.flush()
        return committed
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
        for name in (MANIFEST, storage.SIGNATURE):
            with suppress(OSError):
                (path / name).unlink(missing_ok=True)


def _artifacts(operation: Operation, path: Path, files: Iterable[SentFile]) -> list[Artifact]:
    """Return the files that are announced; what a checkpoint before has is linked from there.

    Raises FileRefused (HOME_GONE) for what no committed checkpoint has here any more.
    """
    artifacts, gone = [], []
    for file in files:
        artifact = Artifact(require_name(file["name"]), file["size_bytes"], file["blake3"])
        if file["home"]:
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
    operation: Operation, path: Path, artifacts: list[Artifact], environment: Mapping[str, object]
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
            "artifacts": [each.to_json() for each in artifacts],
        }
    ).encode()
    path.joinpath(f"{MANIFEST}{storage.DRAFT}").unlink(missing_ok=True)  # of a try that was killed
    write_whole(path / MANIFEST, content)
    sync_directory(path.parent)
    return blake3(content).hexdigest()


def _state(path: Path) -> dict[str, object]:
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
