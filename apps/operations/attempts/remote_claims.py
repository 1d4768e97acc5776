"""Claims of workers over HTTP: a waiting operation, and all that a worker needs to begin it."""

import logging
import time
from dataclasses import dataclass, replace
from typing import Literal, NotRequired, TypedDict

from django.conf import settings
from django.db import DatabaseError

from apps.checkpoints import place, remote, sharing, signatures, signing_keys
from apps.checkpoints.models import Checkpoint
from apps.datasets import services as datasets
from apps.datasets.directories import reading
from apps.datasets.models import DIRECTORY
from apps.ledger.errors import LedgerBroken
from apps.operations import inputs
from apps.operations.attempts import (
    preparation,
    recovery,
    recovery_records,
    remote_ledgers,
    tracing,
)
from apps.operations.attempts.remote_ledgers import ClaimedLedger
from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.errors import StorageUnavailable
from apps.operations.lifecycle import Reason, State
from apps.operations.models import Attempt, Operation
from apps.operations.placement import Offer
from apps.operations.scheduling import claims
from trainops.datasets.errors import DirectoryAway
from trainops.kind import KINDS
from trainops.plain import Config
from trainops.runtime.checkpoint.manifest import ArtifactEntry
from trainops.runtime.errors import CheckpointCorrupted

logger = logging.getLogger(__name__)


class CandidateJson(TypedDict):
    """A committed checkpoint with its files, as CandidateSerializer describes it."""

    checkpoint_id: str
    directory: str
    type: str
    step: int
    manifest_digest: str
    files: list[ArtifactEntry]


class InputJson(TypedDict):
    """A table or directory by its digest, or a model as a checkpoint; see InputSerializer."""

    name: str
    type: Literal["dataset", "directory", "model"]
    blake3: NotRequired[str]
    path: NotRequired[str]  # of a directory
    changed_ns: NotRequired[int | None]
    checkpoint: NotRequired[CandidateJson]


class ClaimedJson(ClaimedLedger):
    """What ClaimedSerializer describes."""

    operation_id: str
    attempt: int
    kind: str
    config: Config
    config_hash: str
    requires_exact: bool
    device: str
    lease_seconds: float
    checkpoints: list[CandidateJson]
    inputs: list[InputJson]
    accepts_uncertain: bool


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claimed attempt, and all that a worker needs to begin it."""

    operation: Operation
    device: str
    checkpoints: list[Checkpoint]  # to start from, in this order
    inputs: list[InputJson]
    ledger: ClaimedLedger

    def to_json(self) -> ClaimedJson:
        operation = self.operation
        return {
            "operation_id": operation.pk,
            "attempt": operation.attempt,
            "kind": operation.kind,
            "config": operation.config,
            "config_hash": operation.config_hash,
            "requires_exact": operation.requires_exact,
            "device": self.device,
            "lease_seconds": settings.THRESHOLDS.orphan_timeout_seconds,
            "checkpoints": [_described(each) for each in self.checkpoints],
            "inputs": self.inputs,
            "accepts_uncertain": True,
            **self.ledger,
        }


class RememberedLook:
    """The last look of this process at the dataset storage: workers ask for work very often."""

    def __init__(self) -> None:
        self._problem, self._valid_until = "", 0.0

    def problem(self) -> str:
        """Return why datasets cannot be read here; empty where they can."""
        if time.monotonic() >= self._valid_until:
            self._problem = datasets.problem()
            seconds = settings.THRESHOLDS.health_check_interval_seconds
            self._valid_until = time.monotonic() + seconds
        return self._problem

    def forget(self) -> None:
        """Look again at the next call."""
        self._valid_until = 0.0


DATASETS = RememberedLook()


def claim(*, worker_id: str, host: str, offer: Offer) -> Claimed | None:
    """Claim a waiting operation that fits, as local workers do; None if there is none.

    Subtasks, and operations that only coordinate subtasks, are left to workers that share the
    storage; operations with datasets are left while this process cannot read them.

    Raises StorageUnavailable: nothing is claimed while checkpoints cannot be read, or signatures
    that are required cannot be judged.
    """
    _require_usable()
    began_ns = time.time_ns()
    offer = replace(offer, takes_subtasks=False, has_datasets=not DATASETS.problem())
    operation = claims.claim(worker_id=worker_id, host=host, offer=offer)
    if operation is None:
        return None
    tracing.claimed(operation, began_ns)
    try:
        return _prepared(operation)
    except LedgerBroken as error:
        _fail(operation, Reason.PRIVACY_LEDGER_MISMATCH, str(error))
        return None
    except CheckpointCorrupted as error:
        _fail(operation, Reason.CHECKPOINT_CORRUPTED, f"a model it uses: {error}")
        return None
    except OSError as error:
        _hand_back(operation, *_why(error))
        return None
    except DatabaseError:
        raise  # nothing can be written down; its lease runs out
    except Exception as error:  # a dataset was deleted, a config is no longer one, …
        logger.exception("%s: attempt %s", operation.pk, operation.attempt)
        _hand_back(operation, Reason.PLATFORM_ERROR, f"{type(error).__name__}: {error}")
        return None


def _require_usable() -> None:
    try:
        place.require()
        signing_keys.require_enrolled()
    except OSError as error:
        raise StorageUnavailable(error) from error


def _why(error: OSError) -> tuple[Reason, str]:
    """Return why a claimed operation cannot begin here, and in words."""
    if isinstance(error, DirectoryAway):
        return Reason.DATASET_AWAY, str(error)
    if isinstance(error, signing_keys.KeyNotEnrolled):
        return Reason.SHUTDOWN, str(error)
    return Reason.STORAGE_ERROR, f"nothing to start from: {error}"


def _prepared(operation: Operation) -> Claimed | None:
    if not operation.resume_from and remote.bucket() is None:
        writer = ReportWriter(operation)
        oldest = Attempt.last_begun(operation.pk, before=operation.attempt)
        recovery_records.recover(writer, oldest)
        recovery.take_over_newest(writer, recovery.in_storage(operation))
    candidates = preparation.acceptable(operation)
    if not candidates and Checkpoint.objects.filter(operation=operation).exists():
        note = "none of its checkpoints is whole, with no signature that refuses it, any more"
        _fail(operation, Reason.CHECKPOINT_CORRUPTED, note)
        return None
    device = Attempt.objects.get(operation=operation, number=operation.attempt).device
    described = remote_ledgers.claimed(operation)
    return Claimed(operation, device, candidates, _inputs(operation), described)


def _fail(operation: Operation, reason: Reason, note: str) -> None:
    claims.finish(
        operation, State.FAILED, outcome=Attempt.Outcome.FAILED, reason=reason, note=note,
        error={"code": reason, "message": note, "traceback": ""},
    )  # fmt: skip


def _hand_back(operation: Operation, reason: Reason, note: str) -> None:
    claims.restart_or_fail(
        operation,
        reason,
        actor=operation.worker_id,
        note=note,
        outcome=Attempt.Outcome.FAILED,
    )


def _inputs(operation: Operation) -> list[InputJson]:
    """Describe what the operation reads: tables by their digest, models as checkpoints.

    Raises SignatureRefused where the signature of a model refuses it, and KeyNotEnrolled.
    """
    engine = KINDS[operation.kind]
    config = engine.parse_config(operation.config)
    used = inputs.models_of(operation)
    for checkpoint in used.values():
        signatures.require(checkpoint)
    tables = [_table(name) for name in engine.dataset_ids(config)]
    models: list[InputJson] = [
        {"name": name, "type": "model", "checkpoint": _described(checkpoint)}
        for name, checkpoint in used.items()
    ]
    return [*tables, *models]


def _table(dataset_id: str) -> InputJson:
    """Describe a dataset; of a registered directory the file is its manifest."""
    dataset = datasets.get(dataset_id)
    described: InputJson = {"name": dataset_id, "type": "dataset", "blake3": dataset.digest}
    if dataset.format == DIRECTORY:
        path = reading.source(dataset)
        described |= {"type": "directory", "path": path, "changed_ns": dataset.changed_ns}
    return described


def _described(checkpoint: Checkpoint) -> CandidateJson:
    return {
        "checkpoint_id": checkpoint.pk,
        "directory": checkpoint.artifacts_path.partition("/")[2],
        "type": checkpoint.type,
        "step": checkpoint.step,
        "manifest_digest": checkpoint.manifest_digest,
        "files": [each.to_json() for each in sharing.artifacts(checkpoint.manifest)],
    }
