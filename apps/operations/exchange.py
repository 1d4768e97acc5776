"""What operations begin with, another tool's file or another's checkpoint; and files given out.

A process of its own reads and writes them (trainops.formats.exchange): it needs torch and the
recipe's code, which the web process never loads.
"""

import json
import logging
import secrets
import subprocess
import sys
import threading
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any, ClassVar

from django.conf import settings

from apps.checkpoints import remote, storage
from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.sharing import artifacts
from apps.operations import inputs, privacy
from apps.operations.errors import StorageUnavailable
from apps.operations.models import Operation, PrivacyAccount, is_part
from trainops.engines.config import OperationConfig
from trainops.engines.errors import CheckpointCorrupted
from trainops.engines.registry import ENGINES
from trainops.engines.spending import Entry
from trainops.errors import Refusal

logger = logging.getLogger(__name__)
KINDS = ("training", "federated", "rl")  # whose files of others become checkpoints, and back
SECONDS = 600
ATTEMPT = 0  # of a checkpoint that no attempt of ours computed
_slots = BoundedSemaphore(2)  # more at once would only take each other's memory


@dataclass
class Beginning(ABC):
    """What an operation begins with: read before there is a row, committed with it."""

    told: dict[str, Any] = field(default_factory=dict, init=False)

    what: ClassVar[str]  # of the event

    def prepare(self, operation_id: str, kind: str, config: OperationConfig) -> None:
        """Turn it into the files of a checkpoint. Raises Refusal; nothing is left then."""
        self.told = _ask(
            {
                **self._source(kind),
                "kind": kind,
                "config": config.model_dump(mode="json"),
                "inputs": inputs.paths(kind, config, _models_here(config)),
                "directory": str(storage.operation_directory(operation_id)),
                "identity": {"operation_id": operation_id, "attempt": ATTEMPT, "kind": kind},
            }
        )
        if (bucket := remote.bucket()) is not None:
            with _answering():
                bucket.upload(f"{operation_id}/{self._staged['directory']}", threading.Event())

    def commit(self, operation: Operation) -> None:
        """Commit the checkpoint, in the transaction that makes the operation's row."""
        checkpoint = checkpoints.commit(
            operation_id=operation.pk, attempt=ATTEMPT, staged=self._staged
        )
        operation.row.update(step=checkpoint.step, forked_from=self.forked_from)
        operation.record(
            self.what,
            actor=operation.owner.get_username() if operation.owner else "system",
            note=self._note(f"{operation.unit} {checkpoint.step}"),
        )

    def discard(self, operation_id: str) -> None:
        """Remove its files, where the row could not be written."""
        path = f"{operation_id}/{self._staged['directory']}"
        names = [storage.location(path, each) for each in artifacts(self._staged["artifacts"])]
        checkpoints.remove_files([path], names)

    @property
    def forked_from(self) -> Operation | None:
        return None

    @property
    def _staged(self) -> dict[str, Any]:
        staged: dict[str, Any] = self.told["staged"]
        return staged

    @abstractmethod
    def _source(self, kind: str) -> dict[str, Any]:
        """Return what is asked of the process. Raises Refusal."""

    @abstractmethod
    def _note(self, place: str) -> str:
        """Return what the event says."""


@dataclass
class Import(Beginning):
    """A file of another tool."""

    file: Path
    name: str  # as its owner calls it

    secret: str = field(default_factory=lambda: secrets.token_hex(privacy.SECRET_BYTES))

    what: ClassVar[str] = "IMPORTED"

    def commit(self, operation: Operation) -> None:
        super().commit(operation)
        if privacy.is_kept(operation.config):
            PrivacyAccount.objects.create(pk=operation.pk, secret=self.secret)
            spent = (Entry(**each) for each in self.told["spent"])
            privacy.append(operation.pk, ATTEMPT, spent)

    def _source(self, kind: str) -> dict[str, Any]:
        require_kind(kind)
        return {"direction": "import", "file": str(self.file), "secret": self.secret}

    def _note(self, place: str) -> str:
        left = [
            f"{item['part']}: {item['note'] or 'not restored'}"
            for item in self.told["receipt"]["items"]
            if not item["exact"]
        ]
        return f"{self.name}, {place}" + "".join(f"; {each}" for each in left)


@dataclass
class Fork(Beginning):
    """A checkpoint of another operation."""

    checkpoint: Checkpoint

    what: ClassVar[str] = "FORKED"

    @property
    def forked_from(self) -> Operation:
        return self.checkpoint.operation

    def _source(self, kind: str) -> dict[str, Any]:
        _have_here(self.checkpoint)
        return {
            "direction": "fork",
            "checkpoint": str(storage.directory(self.checkpoint.artifacts_path)),
            "digest": self.checkpoint.manifest_digest,
            "config_before": self.checkpoint.operation.config,
            **secret_of(self.checkpoint.operation),
        }

    def commit(self, operation: Operation) -> None:
        super().commit(operation)
        if privacy.is_kept(operation.config):
            PrivacyAccount.inherit(operation.pk, self.checkpoint.operation_id)

    def _note(self, place: str) -> str:
        return f"from {self.checkpoint.operation_id}, {place}"


def export(
    checkpoint: Checkpoint, target: Path, *, which: str = "last", agent: int | None = None
) -> str:
    """Write a checkpoint as a file of the other tool of its kind. Raises Refusal.

    `which` of a federated one: its state ("last"), or the model of the best completed round;
    `agent` of agents with separate networks: whose. Returns what that tool would call it. Its
    .sha256 is beside it where the other tool has one.
    """
    operation = checkpoint.operation
    require_kind(operation.kind)
    if is_part(operation.pk):
        raise Refusal(
            "PART_OF_ANOTHER",
            "It is one client's part of a distributed operation: export that one.",
            {"operation_id": operation.pk},
        )
    _have_here(checkpoint)
    told = _ask(
        {
            "direction": "export",
            "kind": operation.kind,
            "which": which,
            "agent": agent,
            "checkpoint": str(storage.directory(checkpoint.artifacts_path)),
            "digest": checkpoint.manifest_digest,
            "config": operation.config,
            "name": operation.name,
            "file": str(target),
        }
    )
    return str(told["name"])


def pack(file: Path, name: str, target: Path) -> str:
    """Write a zip with the file under this name and its .sha256, if any; return its name."""
    digest = file.with_name(f"{file.name}.sha256")
    with zipfile.ZipFile(target, "x") as packed:
        packed.write(file, name)
        if digest.exists():
            packed.write(digest, f"{name}.sha256")
    return f"{name}.zip"


def tabulate(checkpoint: Checkpoint, table: str, target: Path) -> None:
    """Write all "trades", or the "equity" of every bar, of a finished backtest as CSV.

    Raises Refusal.
    """
    operation = checkpoint.operation
    config = ENGINES[operation.kind].parse_config(operation.config)
    _have_here(checkpoint)
    _ask(
        {
            "direction": "tabulate",
            "checkpoint": str(storage.directory(checkpoint.artifacts_path)),
            "digest": checkpoint.manifest_digest,
            "config": operation.config,
            "inputs": inputs.paths(operation.kind, config, _models_here(config)),
            "table": table,
            "file": str(target),
        }
    )


def secret_of(operation: Operation) -> dict[str, str]:
    """Return what a process needs to read checkpoints in which clients' updates are masked."""
    if not privacy.is_kept(operation.config):
        return {}
    return {"secret": PrivacyAccount.of(operation.pk).secret}


def require_kind(kind: str) -> None:
    if kind not in KINDS:
        raise Refusal(
            "FORMAT_NOT_SUPPORTED",
            f"Operations of kind {kind!r} take no file of another tool.",
            {"given": kind, "allowed": list(KINDS)},
        )


def _have_here(checkpoint: Checkpoint) -> None:
    """Download it where it lies in a bucket only. Raises Refusal."""
    directory = storage.directory(checkpoint.artifacts_path)
    if (bucket := remote.bucket()) is not None and not directory.exists():
        with _answering():
            bucket.download(
                checkpoint.artifacts_path, checkpoint.manifest_digest, threading.Event()
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


def _models_here(config: OperationConfig) -> dict[str, Checkpoint]:
    models = inputs.finals(config.models())
    for each in models.values():
        _have_here(each)
        with _answering():
            inputs.require_committed(each)
    return models


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
