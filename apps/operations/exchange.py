"""Files of other tools: an operation that begins with one, and a checkpoint given out as one.

A process of its own reads and writes them (trainops.formats.exchange): it needs torch and the
recipe's code, which the web process never loads.
"""

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

from django.conf import settings

from apps.checkpoints import remote, storage
from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.sharing import artifacts
from apps.datasets import services as datasets
from apps.operations.errors import StorageUnavailable
from apps.operations.models import Operation
from trainops.engines.config import OperationConfig
from trainops.engines.errors import CheckpointCorrupted
from trainops.engines.registry import ENGINES
from trainops.errors import Refusal

logger = logging.getLogger(__name__)
KINDS = ("training",)  # whose files of others can be made into checkpoints, and back
SECONDS = 600
ATTEMPT = 0  # of a checkpoint that no attempt of ours computed
_slots = BoundedSemaphore(2)  # more at once would only take each other's memory


@dataclass(slots=True)
class Import:
    """A file that an operation begins with: read before there is a row, committed with it."""

    file: Path
    name: str  # as its owner calls it
    receipt: dict[str, Any] = field(default_factory=dict)
    _staged: dict[str, Any] = field(default_factory=dict)

    def prepare(self, operation_id: str, kind: str, config: OperationConfig) -> None:
        """Turn it into the files of a checkpoint. Raises Refusal; nothing is left then."""
        require_kind(kind)
        told = _ask(
            {
                "direction": "import",
                "file": str(self.file),
                "config": config.model_dump(mode="json"),
                "inputs": {
                    each: str(datasets.local_path(each)) for each in _dataset_ids(kind, config)
                },
                "directory": str(storage.operation_directory(operation_id)),
                "identity": {"operation_id": operation_id, "attempt": ATTEMPT, "kind": kind},
            }
        )
        self._staged, self.receipt = told["staged"], told["receipt"]
        if (bucket := remote.bucket()) is not None:
            with _answering():
                bucket.upload(f"{operation_id}/{self._staged['directory']}", threading.Event())

    def commit(self, operation: Operation) -> None:
        """Commit the checkpoint, in the transaction that makes the operation's row."""
        checkpoint = checkpoints.commit(
            operation_id=operation.pk, attempt=ATTEMPT, staged=self._staged
        )
        operation.row.update(step=checkpoint.step)
        left = [
            f"{item['part']}: {item['note'] or 'not restored'}"
            for item in self.receipt["items"]
            if not item["exact"]
        ]
        note = f"{self.name}, {operation.unit} {checkpoint.step}"
        operation.record(
            "IMPORTED",
            actor=operation.owner.get_username() if operation.owner else "system",
            note=note + "".join(f"; {each}" for each in left),
        )

    def discard(self, operation_id: str) -> None:
        """Remove its files, where the row could not be written."""
        path = f"{operation_id}/{self._staged['directory']}"
        names = [storage.location(path, each) for each in artifacts(self._staged["artifacts"])]
        checkpoints.remove_files([path], names)


def export(checkpoint: Checkpoint, target: Path) -> None:
    """Write a checkpoint as a file of the other tool of its kind. Raises Refusal."""
    operation = checkpoint.operation
    require_kind(operation.kind)
    directory = storage.directory(checkpoint.artifacts_path)
    if (bucket := remote.bucket()) is not None and not directory.exists():
        with _answering():
            bucket.download(
                checkpoint.artifacts_path, checkpoint.manifest_digest, threading.Event()
            )
    _ask(
        {
            "direction": "export",
            "checkpoint": str(directory),
            "digest": checkpoint.manifest_digest,
            "config": operation.config,
            "name": operation.name,
            "file": str(target),
        }
    )


def require_kind(kind: str) -> None:
    if kind not in KINDS:
        raise Refusal(
            "FORMAT_NOT_SUPPORTED",
            f"Operations of kind {kind!r} take no file of another tool.",
            {"given": kind, "allowed": list(KINDS)},
        )


@contextmanager
def _answering() -> Iterator[None]:
    """Tell a person what a bucket did not do."""
    try:
        yield
    except CheckpointCorrupted as error:
        raise Refusal("CHECKPOINT_CORRUPTED", str(error), status=409) from error
    except OSError as error:
        raise StorageUnavailable(error) from error


def _dataset_ids(kind: str, config: OperationConfig) -> list[str]:
    return list(ENGINES[kind].dataset_ids(config))


def _ask(request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        with _slots:
            done = subprocess.run(
                [sys.executable, "-m", "trainops.formats.exchange"],
                input=json.dumps(request).encode(),
                capture_output=True,
                cwd=settings.ROOT,
                timeout=SECONDS,
                check=False,
            )
    except subprocess.TimeoutExpired:
        message = f"It takes longer than {SECONDS} seconds."
        raise Refusal("UNUSABLE_FILE", message, {"allowed_seconds": SECONDS}) from None
    if done.returncode:
        told = done.stderr.decode(errors="replace")
        logger.error("A file could not be exchanged (exit code %s):\n%s", done.returncode, told)
        last_line = told.strip().rpartition("\n")[2][:300]
        raise Refusal("UNUSABLE_FILE", f"It breaks the program that works on it: {last_line}")
    answer: dict[str, Any] = json.loads(done.stdout)
    if refused := answer.get("refused"):
        raise Refusal(refused["code"], refused["message"], refused["details"], _status(refused))
    return answer


def _status(refused: Mapping[str, Any]) -> int:
    return {"STORAGE_ERROR": 507, "CHECKPOINT_CORRUPTED": 409}.get(refused["code"], 400)
