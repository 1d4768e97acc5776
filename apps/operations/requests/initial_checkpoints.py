"""Initial checkpoints of operations: an imported file, or another operation's checkpoint."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from apps.checkpoints import place, remote, signatures, signing_keys, storage
from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.ledger import services as ledgers
from apps.operations import inputs
from apps.operations.files import exchange
from apps.operations.models import Operation
from apps.operations.requests import changed_code
from trainops.concurrency_limit import UPLOAD_WAIT_SECONDS
from trainops.files.requests import (
    ExchangeAnswer,
    ForkRequest,
    ImportRequest,
    Target,
    WarmStartRequest,
)
from trainops.kind import KINDS
from trainops.runtime.checkpoint import staged_json
from trainops.runtime.checkpoint.manifest import StagedCheckpoint
from trainops.runtime.config import OperationConfig
from trainops.runtime.ledger import Entry

ATTEMPT = 0  # of a checkpoint that no attempt of ours computed


@dataclass
class InitialCheckpoint(ABC):
    """What an operation begins with: read before there is a row, committed with it."""

    answer: ExchangeAnswer = field(default_factory=ExchangeAnswer, init=False)

    what: ClassVar[str]  # of the event
    wait_seconds: ClassVar[float] = 0  # for a free process

    def prepare(
        self, operation_id: str, kind: str, config: OperationConfig, *, person: str
    ) -> None:
        """Turn it into the files of a checkpoint.

        Raises ConfigError and DomainError; nothing is left then.
        """
        with exchange.answering():
            place.require()
            signing_keys.require_enrolled()
        models, values = exchange.models_here(config), config.model_dump(mode="json")
        target: Target = {
            "directory": str(storage.operation_directory(operation_id)),
            "identity": {
                "operation_id": operation_id,
                "attempt": ATTEMPT,
                "kind": kind,
                "config": values,
                "inputs": inputs.digests(config.dataset_ids(), models),
            },
            "inputs": inputs.paths(kind, config, models),
        }
        request = self._request(target)
        self.answer = exchange.ask(request, person=person, wait_seconds=self.wait_seconds)
        path = f"{operation_id}/{self._staged.directory}"
        with exchange.answering():
            signatures.write(path, self._staged.digest)
            if (bucket := remote.bucket()) is not None:
                bucket.upload(path, threading.Event())

    def commit(self, operation: Operation) -> None:
        """Commit the checkpoint, in the transaction that makes the operation's row."""
        checkpoint = checkpoints.commit(
            operation_id=operation.pk, attempt=ATTEMPT, staged=self._staged
        )
        operation.row.update(step=checkpoint.step, forked_from=self.forked_from)
        operation.record(
            self.what,
            actor=operation.owner.get_username() if operation.owner else "system",
            note=self._note(KINDS[operation.kind].place(checkpoint.state, checkpoint.step)),
        )

    def discard(self, operation_id: str) -> None:
        """Remove its files, where the row could not be written."""
        path = f"{operation_id}/{self._staged.directory}"
        names = [storage.location(path, each) for each in self._staged.artifacts]
        checkpoints.remove_files([path], names)

    @property
    def forked_from(self) -> Operation | None:
        return None

    @property
    def _staged(self) -> StagedCheckpoint:
        return staged_json.from_json(self.answer["staged"])

    @abstractmethod
    def _request(self, target: Target) -> ImportRequest | ForkRequest | WarmStartRequest:
        """Return the request to the confined process. Raises DomainError."""

    @abstractmethod
    def _note(self, place: str) -> str:
        """Return what the event says."""


@dataclass
class Import(InitialCheckpoint):
    """A file of another tool."""

    file: Path
    name: str  # as its owner calls it

    secret: str = field(default_factory=ledgers.new_secret)

    what: ClassVar[str] = "IMPORTED"
    wait_seconds: ClassVar[float] = UPLOAD_WAIT_SECONDS

    def commit(self, operation: Operation) -> None:
        super().commit(operation)
        if operation.uses_ledger:
            ledgers.create(operation.pk, self.secret)
            entries = (Entry(**each) for each in self.answer["entries"])
            ledgers.append(operation.pk, ATTEMPT, entries, operation.ledger_fields)

    def _request(self, target: Target) -> ImportRequest:
        return {
            "direction": "import",
            "kind": target["identity"]["kind"],
            "config": target["identity"]["config"],
            **target,
            "file": str(self.file),
            "secret": self.secret,
        }

    def _note(self, place: str) -> str:
        left = [
            f"{item['part']}: {item['note'] or 'not restored'}"
            for item in self.answer["receipt"]["items"]
            if not item["exact"]
        ]
        return f"{self.name}, {place}" + "".join(f"; {each}" for each in left)


@dataclass
class WarmStart(InitialCheckpoint):
    """The weights of another operation's checkpoint, in a state that is otherwise new."""

    checkpoint: Checkpoint
    skipped: Sequence[str] = ()  # newer ones, and why they could not be used

    secret: str = field(default_factory=ledgers.new_secret)  # of a ledger that begins empty
    ledger_notes: Sequence[str] = field(default=(), init=False)

    what: ClassVar[str] = "WARM_STARTED"
    SOURCE: ClassVar[str] = "weights of "  # begins the note; the id and a comma follow

    @classmethod
    def source_in(cls, note: str) -> str:
        """Return the id of the operation whose weights an event is about."""
        return note.removeprefix(cls.SOURCE).partition(",")[0]

    def commit(self, operation: Operation) -> None:
        if operation.uses_ledger:
            ledgers.create(operation.pk, self.secret)
        self.ledger_notes = about_ledgers(self.checkpoint.operation, operation.uses_ledger)
        super().commit(operation)

    def _request(self, target: Target) -> WarmStartRequest:
        exchange.have_here(self.checkpoint)
        return {
            "direction": "warm_start",
            "kind": target["identity"]["kind"],
            "config": target["identity"]["config"],
            **target,
            "checkpoint": str(storage.directory(self.checkpoint.artifacts_path)),
            "digest": self.checkpoint.manifest_digest,
            "secret": self.secret,
        }

    def _note(self, place: str) -> str:
        parts = [f"{item['part']}: {item['note']}" for item in self.answer["receipt"]["items"]]
        kind, begun = KINDS[self.checkpoint.operation.kind], self.checkpoint
        source = f"{self.SOURCE}{begun.operation_id}, {kind.place(begun.state, begun.step)}"
        return "; ".join([source, *parts, *self.skipped, *self.ledger_notes])


def about_ledgers(source: Operation, uses_ledger: bool) -> list[str]:
    """Return what a warm start must say of ledgers: that of the source is not carried over.

    `uses_ledger` says whether the new operation has one. Weights reveal what they were trained on,
    so whatever the new ledger comes to is not all for data that both use.
    """
    if not source.uses_ledger:
        unbounded = (
            f"the source {source.pk} has no ledger: for data that it was trained on, the ledger of "
            "the new operation does not limit what the weights reveal"
        )
        return [unbounded] if uses_ledger else []
    notes = [
        f"the ledger of {source.pk} is not carried over: for data that both are trained on, what "
        "it spent, and what the operations spent that its weights come from, counts in addition"
    ]
    without = "the new operation has no ledger: what it learns from such data is not limited"
    return notes if uses_ledger else [*notes, without]


@dataclass
class Fork(InitialCheckpoint):
    """A checkpoint of another operation."""

    checkpoint: Checkpoint
    skipped: Sequence[str] = ()  # newer ones, and why they could not be used
    accept_inexact: bool = False  # run changed files of the recipe

    what: ClassVar[str] = "FORKED"

    @property
    def forked_from(self) -> Operation:
        return self.checkpoint.operation

    def prepare(
        self, operation_id: str, kind: str, config: OperationConfig, *, person: str
    ) -> None:
        config.require_forkable(KINDS[kind].parse_config(self.forked_from.config))
        changed_code.require_accepted(
            self.forked_from, self.checkpoint, config, is_accepted=self.accept_inexact
        )
        super().prepare(operation_id, kind, config, person=person)

    def _request(self, target: Target) -> ForkRequest:
        source = self.checkpoint.operation
        if source.uses_ledger:
            ledgers.verify(source.pk, source.ledger_fields)
        exchange.have_here(self.checkpoint)
        return {
            "direction": "fork",
            "kind": target["identity"]["kind"],
            "config": target["identity"]["config"],
            **target,
            "checkpoint": str(storage.directory(self.checkpoint.artifacts_path)),
            "digest": self.checkpoint.manifest_digest,
            "config_before": self.checkpoint.operation.config,
            **exchange.secret_of(self.checkpoint.operation),
        }

    def commit(self, operation: Operation) -> None:
        super().commit(operation)
        if operation.uses_ledger:
            ledgers.inherit(operation.pk, self.checkpoint.operation_id)

    def _note(self, place: str) -> str:
        return "; ".join([f"from {self.checkpoint.operation_id}, {place}", *self.skipped])
