"""Attempts of workers over HTTP: the supervisor's duties, one function per call.

Such a worker has neither the database's address nor the storage's. Every call names operation and
attempt, is under the fence, and renews the lease; an attempt that is to be killed gets no more
time.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import DatabaseError
from django.utils import timezone

from apps.checkpoints import place, remote, sharing, storage
from apps.checkpoints import services as checkpoints
from apps.checkpoints.models import Checkpoint
from apps.datasets import services as datasets
from apps.operations import inputs, privacy
from apps.operations.attempts import adoption, recovery
from apps.operations.attempts.ledger import Ledger
from apps.operations.errors import LedgerBroken, NotAllowed, StorageUnavailable
from apps.operations.lifecycle import Reason, State
from apps.operations.models import Attempt, Operation
from apps.operations.placement import Offer
from apps.operations.scheduling import claims
from trainops.kind import KINDS
from trainops.runtime.errors import CheckpointCorrupted

logger = logging.getLogger(__name__)
PROCEED = "proceed"


@dataclass(frozen=True, slots=True)
class Directive:
    """What a worker has to do with its attempt: proceed, cancel, preempt or kill it."""

    directive: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """Progress of an attempt since the last report; see the API's description."""

    step: int
    total_steps: int
    place: str = ""
    points: Iterable[tuple[int, datetime, Mapping[str, float]]] = ()
    log: str = ""
    steps_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claimed attempt, and all that a worker needs to begin it."""

    operation: Operation
    device: str
    checkpoints: list[Checkpoint]  # to start from, in this order
    inputs: list[dict[str, Any]]
    privacy: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        operation = self.operation
        return {
            "operation_id": operation.pk,
            "attempt": operation.attempt,
            "kind": operation.kind,
            "config": operation.config,
            "config_hash": operation.config_hash,
            "device": self.device,
            "lease_seconds": settings.THRESHOLDS.orphan_timeout_seconds,
            "checkpoints": [_described(each) for each in self.checkpoints],
            "inputs": self.inputs,
            "privacy": self.privacy or None,
        }


def claim(*, worker_id: str, host: str, offer: Offer) -> Claimed | None:
    """Claim a waiting operation that fits, as local workers do; None if there is none.

    Operations that only coordinate clients, and clients of distributed ones, are left to workers
    that share the storage.

    Raises StorageUnavailable: nothing is claimed while checkpoints cannot be read.
    """
    try:
        place.require()
    except OSError as error:
        raise StorageUnavailable(error) from error
    operation = claims.claim(
        worker_id=worker_id, host=host, offer=replace(offer, takes_parts=False)
    )
    if operation is None:
        return None
    try:
        return _prepared(operation)
    except LedgerBroken as error:
        _fail(operation, Reason.PRIVACY_LEDGER_MISMATCH, str(error))
        return None
    except (OSError, CheckpointCorrupted) as error:
        _hand_back(operation, Reason.STORAGE_ERROR, f"nothing to start from: {error}")
        return None
    except DatabaseError:
        raise  # nothing can be written down; its lease runs out
    except Exception as error:  # a dataset was deleted, a config is no longer one, …
        logger.exception("%s: attempt %s", operation.pk, operation.attempt)
        _hand_back(operation, Reason.HOUSE_ERROR, f"{type(error).__name__}: {error}")
        return None


def _prepared(operation: Operation) -> Claimed | None:
    if not operation.resume_from and remote.bucket() is None:
        ledger = Ledger(operation)
        oldest = Attempt.last_begun(operation.pk, before=operation.attempt)
        adoption.adopt(ledger, oldest)
        recovery.take_over_newest(ledger, recovery.in_storage(operation))
    candidates = checkpoints.to_resume_from(operation.pk, operation.resume_from)
    if not candidates and Checkpoint.objects.filter(operation=operation).exists():
        note = "all of its checkpoints are damaged"
        _fail(operation, Reason.CHECKPOINT_CORRUPTED, note)
        return None
    device = Attempt.objects.get(operation=operation, number=operation.attempt).device
    secrets = privacy.told_to_child(operation.pk) if operation.uses_ledger else {}
    return Claimed(operation, device, candidates, _inputs(operation), secrets)


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


def _inputs(operation: Operation) -> list[dict[str, Any]]:
    """Describe what the operation reads: tables by their digest, models as checkpoints."""
    engine = KINDS[operation.kind]
    config = engine.parse_config(operation.config)
    tables = [
        {"name": name, "type": "dataset", "blake3": datasets.get(name).digest}
        for name in engine.dataset_ids(config)
    ]
    models = [
        {"name": name, "type": "model", "checkpoint": _described(checkpoint)}
        for name, checkpoint in inputs.models_of(operation).items()
    ]
    return [*tables, *models]


def _described(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "checkpoint_id": checkpoint.pk,
        "directory": checkpoint.artifacts_path.partition("/")[2],
        "type": checkpoint.type,
        "step": checkpoint.step,
        "manifest_digest": checkpoint.manifest_digest,
        "files": [asdict(each) for each in sharing.artifacts(checkpoint.manifest)],
    }


def owned(*, worker_id: str, operation_id: str, attempt: int) -> Operation:
    """Return the operation, if this worker's attempt owns it. Raises NotAllowed (SUPERSEDED)."""
    mine = Operation.objects.owned(operation_id, attempt).filter(worker_id=worker_id)
    operation = mine.first()
    if operation is None:
        raise superseded(operation_id, attempt)
    return operation


def superseded(operation_id: str, attempt: int) -> NotAllowed:
    row = Operation.objects.filter(pk=operation_id).values("state", "attempt").first()
    return NotAllowed(
        "SUPERSEDED",
        f"Attempt {attempt} does not own {operation_id[:64]}: stop it; nothing was written.",
        current_status=row["state"] if row else None,
        current_attempt=row["attempt"] if row else None,
    )


def restored(
    operation: Operation, *, receipt: Mapping[str, Any], step: int, measured_to: int | None = None
) -> Directive:
    """Write down where the attempt starts, and how exact that is. Raises Fenced.

    `measured_to`: see `Ledger.restored`.
    """
    if receipt.get("checkpoint"):
        checkpoints.heal(f"{operation.pk}/{receipt['checkpoint']}")
    Ledger(operation).restored(receipt, step, measured_to)
    return directive(Operation.objects.get(pk=operation.pk))


def reported(operation: Operation, report: Report) -> Directive:
    """Record progress, metric points and output. Raises Fenced."""
    ledger = Ledger(operation)
    ledger.step, ledger.place = operation.step, operation.place  # what does not move is no progress
    ledger.progress(
        {
            "step": report.step,
            "total_steps": report.total_steps,
            "place": report.place,
            "points": [(step, at.timestamp(), dict(values)) for step, at, values in report.points],
        }
    )
    if report.steps_per_second is not None:
        ledger.fields["steps_per_second"] = report.steps_per_second
    if report.log:
        ledger.log(report.log.encode())
    ledger.flush()
    return renewed(Operation.objects.get(pk=operation.pk))


def renewed(operation: Operation) -> Directive:
    """Return the directive; renew the lease unless it is to kill."""
    answer = directive(operation)
    if answer.directive != "kill":
        claims.renew(operation.worker_id, [(operation.pk, operation.attempt)])
    return answer


def directive(operation: Operation) -> Directive:
    """Return the directive for a running attempt, by stop requests, limits and progress."""
    limits, moment = operation.config["limits"], timezone.now()
    if operation.stop_requested == Operation.Stop.KILL:
        return Directive("kill", Reason.KILLED_BY_PERSON)
    if operation.stop_requested == Operation.Stop.CANCEL:
        asked_at = operation.stop_requested_at or moment
        is_overdue = (moment - asked_at).total_seconds() > limits["cancel_timeout_seconds"]
        if is_overdue:
            return Directive("kill", Reason.CANCEL_TIMEOUT)
        return Directive("cancel", Reason.CANCELLED_BY_PERSON)
    if _seconds_since(operation.progressed_at) > limits["stall_timeout_seconds"]:
        return Directive("kill", Reason.STALLED)
    if is_out_of_time(operation):
        return Directive("preempt", Reason.TIME_LIMIT)
    return Directive(PROCEED)


def is_out_of_time(operation: Operation) -> bool:
    """Whether all attempts of the operation together took longer than its config allows."""
    longest = operation.config["limits"].get("max_duration_seconds")
    if not longest:
        return False
    attempt = Attempt.objects.get(operation=operation, number=operation.attempt)
    spent = Attempt.seconds_spent(operation.pk) + _seconds_since(attempt.started_at)
    return bool(spent > longest)


def _seconds_since(moment: datetime | None) -> float:
    return (timezone.now() - moment).total_seconds() if moment else 0.0


def readable(operation: Operation, checkpoint_id: str) -> Checkpoint:
    """Return a checkpoint that the attempt may read: its own, or of a model that it uses.

    Raises NotAllowed.
    """
    usable = [*checkpoints.to_resume_from(operation.pk), *inputs.models_of(operation).values()]
    for checkpoint in usable:
        if checkpoint.pk == checkpoint_id:
            return checkpoint
    raise NotAllowed(
        "CHECKPOINT_NOT_READABLE",
        f"got {checkpoint_id[:64]!r}; allowed: a checkpoint that this attempt may start from.",
        allowed=[each.pk for each in usable],
    )


def damaged(
    operation: Operation, checkpoint_id: str, *, missing: list[str], altered: list[str]
) -> None:
    """Look at a checkpoint that a worker found damaged, and write down what is found here.

    Raises NotAllowed, StorageUnavailable.
    """
    checkpoint = readable(operation, checkpoint_id)
    told = CheckpointCorrupted(
        storage.directory(checkpoint.artifacts_path), missing=missing, altered=altered
    )
    try:
        problem = checkpoints.check(checkpoint)
    except OSError as error:
        raise StorageUnavailable(error) from error
    note = f"on {operation.worker_id}: {told.findings}; on the server: {problem or 'undamaged'}"
    operation.record("CHECKPOINT_REPORTED", actor=operation.worker_id, note=note)
