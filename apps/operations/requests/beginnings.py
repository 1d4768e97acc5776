"""What operations begin with: another tool's file, or another operation's checkpoint."""

import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from apps.checkpoints import place, remote, storage
from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.sharing import artifacts
from apps.operations import exchange, inputs, privacy
from apps.operations.models import Operation, PrivacyAccount
from trainops.errors import Refusal
from trainops.kind import KINDS
from trainops.runtime.config import OperationConfig
from trainops.runtime.ledger import Entry
from trainops.slots import WAIT_SECONDS

ATTEMPT = 0  # of a checkpoint that no attempt of ours computed


@dataclass
class Beginning(ABC):
    """What an operation begins with: read before there is a row, committed with it."""

    told: dict[str, Any] = field(default_factory=dict, init=False)

    what: ClassVar[str]  # of the event
    wait_seconds: ClassVar[float] = WAIT_SECONDS  # for a free process

    def prepare(
        self, operation_id: str, kind: str, config: OperationConfig, *, person: str
    ) -> None:
        """Turn it into the files of a checkpoint. Raises Refusal; nothing is left then."""
        with exchange.answering():
            place.require()
        models, told = exchange.models_here(config), config.model_dump(mode="json")
        self.told = exchange.ask(
            {
                **self._source(kind),
                "kind": kind,
                "config": told,
                "inputs": inputs.paths(kind, config, models),
                "directory": str(storage.operation_directory(operation_id)),
                "identity": {
                    "operation_id": operation_id,
                    "attempt": ATTEMPT,
                    "kind": kind,
                    "config": told,
                    "inputs": inputs.digests(config.dataset_ids(), models),
                },
            },
            person=person,
            wait_seconds=self.wait_seconds,
        )
        if (bucket := remote.bucket()) is not None:
            with exchange.answering():
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
    wait_seconds: ClassVar[float] = 60.0  # uploads have threads of their own

    def commit(self, operation: Operation) -> None:
        super().commit(operation)
        if operation.uses_ledger:
            PrivacyAccount.objects.create(pk=operation.pk, secret=self.secret)
            spent = (Entry(**each) for each in self.told["spent"])
            privacy.append(operation.pk, ATTEMPT, spent)

    def prepare(
        self, operation_id: str, kind: str, config: OperationConfig, *, person: str
    ) -> None:
        """Do as above. A checkpoint of ours brings no ledger: what was spent is in rows."""
        if exchange.is_own(self.file) and KINDS[kind].uses_ledger(config.model_dump(mode="json")):
            raise Refusal(
                "FORMAT_NOT_SUPPORTED",
                "What was spent of its clients' privacy is in rows of the other installation, and "
                "a checkpoint alone has none of it. Export the operation as a federated file "
                "there, and import that: it holds what was spent.",
                {"allowed": ["a federated file (checkpoints export)"]},
            )
        super().prepare(operation_id, kind, config, person=person)

    def _source(self, kind: str) -> dict[str, Any]:
        if not exchange.is_own(self.file):
            exchange.require_kind(kind)
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
    skipped: Sequence[str] = ()  # newer ones, and why they could not be used

    what: ClassVar[str] = "FORKED"

    @property
    def forked_from(self) -> Operation:
        return self.checkpoint.operation

    def _source(self, kind: str) -> dict[str, Any]:
        if self.checkpoint.operation.uses_ledger:
            privacy.verify(self.checkpoint.operation_id)
        exchange.have_here(self.checkpoint)
        return {
            "direction": "fork",
            "checkpoint": str(storage.directory(self.checkpoint.artifacts_path)),
            "digest": self.checkpoint.manifest_digest,
            "config_before": self.checkpoint.operation.config,
            **exchange.secret_of(self.checkpoint.operation),
        }

    def commit(self, operation: Operation) -> None:
        super().commit(operation)
        if operation.uses_ledger:
            PrivacyAccount.inherit(operation.pk, self.checkpoint.operation_id)

    def _note(self, place: str) -> str:
        return "; ".join([f"from {self.checkpoint.operation_id}, {place}", *self.skipped])
