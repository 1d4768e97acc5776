"""What a worker reports of its attempts, running and ended, and the directive for each.

A worker's word alone moves no operation: only the current attempt of an operation, of this very
worker, that runs, or that orphan detection released and no worker has claimed since.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db import transaction
from django.db.models import Case, F, IntegerField, Value, When

from apps.operations import outbox
from apps.operations.attempts.finalization import settle
from apps.operations.attempts.outcomes import (
    AttemptOutcome,
    Cancelled,
    Completed,
    Interrupted,
)
from apps.operations.attempts.remote_attempts import is_out_of_time
from apps.operations.lifecycle import OLDER_REASONS, Reason, ReportedError, State
from apps.operations.models import Attempt, Operation
from apps.operations.scheduling import claims, handbacks
from trainops.clock import seconds_from_now

logger = logging.getLogger(__name__)
Key = tuple[str, int]  # operation, attempt

# Reasons that only the server may set; a worker may give every other.
NOT_A_WORKERS = frozenset(
    {
        Reason.NONE,
        Reason.CANCELLED_BY_PERSON,
        Reason.KILLED_BY_PERSON,
        Reason.CANCEL_TIMEOUT,
        Reason.DROPPED,
        Reason.PRUNED,
        Reason.WORKER_LOST,
        Reason.LEASE_LOST,
        Reason.PREEMPTED,
        Reason.BUDGET_USED_UP,
    }
)
RECORDED_AS = {
    "completed": {Attempt.Outcome.COMPLETED},
    "failed": {Attempt.Outcome.FAILED, Attempt.Outcome.PREEMPTED},
    "cancelled": {Attempt.Outcome.CANCELLED, Attempt.Outcome.PREEMPTED},
}


@dataclass(frozen=True, slots=True)
class AttemptOrder:
    """What a worker is to do with one attempt that it says it runs."""

    operation_id: str
    attempt: int
    directive: str  # "proceed", "cancel", "kill" (requested by a person), "stop" (not its own)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """One attempt that a worker reports as ended, perhaps while the server was away."""

    operation_id: str
    attempt: int
    outcome: str  # "completed", "failed", "cancelled"
    result: Mapping[str, object] | None = None
    error: ReportedError | None = None
    completed_at: datetime | None = None  # by the worker's clock: only shown, in no calculation


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the end of an attempt was taken down; a worker may forget it in either case."""

    operation_id: str
    attempt: int
    accepted: bool
    reason: str = ""


def sync(*, worker_id: str, running: Iterable[Key]) -> list[AttemptOrder]:
    """Renew the leases of what a worker still owns, take back what was given up too early.

    Returns one order for each attempt it reported. Superseded attempts and unknown operations are
    to be stopped; their late writes find the fence.
    """
    reported = list(running)
    owned = claims.renew(worker_id, reported)
    if missing := [key for key in reported if key not in owned]:
        for key in missing:
            take_back(worker_id, key)
        owned |= claims.renew(worker_id, missing)  # also what another request took back just now
    requests = dict(
        Operation.objects.filter(pk__in=[each for each, _ in owned]).values_list(
            "pk", "stop_requested"
        )
    )
    return [
        AttemptOrder(*key, requests.get(key[0]) or "proceed")
        if key in owned
        else AttemptOrder(*key, "stop", _why_not(worker_id, key))
        for key in reported
    ]


def stop_operations(orders: Iterable[AttemptOrder]) -> list[str]:
    """Return the operations that the worker is to stop, whatever the way and the cause."""
    stopped = {each.operation_id for each in orders if each.directive != "proceed"}
    going_on = {each.operation_id for each in orders if each.directive == "proceed"}
    return sorted(stopped - going_on)


def newest_attempt(worker_id: str, operation_id: str) -> Key:
    """Return which attempt a worker means that names only the operation; 0 if it had none."""
    mine = Attempt.objects.filter(operation_id=operation_id, worker_id=worker_id)
    return operation_id, mine.values_list("number", flat=True).first() or 0


def finalize(*, worker_id: str, ended: Iterable[Ended]) -> list[Verdict]:
    """Store how attempts ended, under the fence; the same report again changes nothing."""
    verdicts = [_finalize(worker_id, each) for each in ended]
    outbox.deliver()
    return verdicts


def _finalize(worker_id: str, ended: Ended) -> Verdict:
    key = (ended.operation_id, ended.attempt)
    mine = Operation.objects.owned(*key).filter(worker_id=worker_id)
    operation = mine.first()
    if operation is None:
        take_back(worker_id, key)
        operation = mine.first()  # also where another request took it back just now
    if operation is not None and _settle(operation, ended):
        return Verdict(*key, accepted=True)
    attempt = Attempt.objects.filter(operation_id=key[0], number=key[1], worker_id=worker_id)
    if attempt.filter(outcome__in=RECORDED_AS[ended.outcome]).exists():
        return Verdict(*key, accepted=True, reason="KNOWN_ALREADY")
    return Verdict(*key, accepted=False, reason=_why_not(worker_id, key))


def _settle(operation: Operation, ended: Ended) -> bool:
    try:
        settle(operation, _ending(operation, ended))
    except claims.Fenced:
        return False  # a moment ago it was
    if ended.completed_at is not None:
        moment = f"{ended.completed_at:%Y-%m-%d %H:%M:%S %Z}"
        note = f"{ended.outcome} at {moment} by its worker's clock"
        operation.record("REPORTED", actor=operation.worker_id, note=note)
    return True


def _ending(operation: Operation, ended: Ended) -> AttemptOutcome:
    if ended.outcome == "completed":
        return Completed(ended.result or {})
    if ended.outcome == "cancelled":
        if not operation.stop_requested and is_out_of_time(operation):
            return Interrupted(Reason.TIME_LIMIT, "the time limit was reached")
        if operation.stop_requested == Operation.Stop.KILL:
            return Cancelled(Reason.KILLED_BY_PERSON, "killed")
        if operation.stop_requested:
            return Cancelled(Reason.CANCELLED_BY_PERSON, "stopped at a safe point")
        if (handback := handbacks.of_attempt(operation.pk, operation.attempt)) is not None:
            return Interrupted(handback.reason, handback.note)
        return Interrupted(Reason.SHUTDOWN, "the worker stopped it without a request")
    error: ReportedError = {"code": "", "message": "", "traceback": ""}
    if ended.error:
        error = {**error, **ended.error}
    error["code"] = OLDER_REASONS.get(error["code"], error["code"])
    is_known = error["code"] in set(Reason) - NOT_A_WORKERS
    reason = Reason(error["code"]) if is_known else Reason.JOB_ERROR
    return Interrupted(reason, error["message"] or reason.label, error)


def take_back(worker_id: str, key: Key) -> bool:
    """Return an attempt that the orphan detector gave up to the worker that still has it."""
    operation_id, attempt = key
    mine = Attempt.objects.filter(
        operation_id=operation_id,
        number=attempt,
        worker_id=worker_id,
        outcome=Attempt.Outcome.LOST,
    )
    given_up = Operation.objects.filter(
        pk=operation_id,
        attempt=attempt,
        state__in=[State.FAILED, State.RESUMING],
        reason=Reason.WORKER_LOST,
    )
    with transaction.atomic():
        if not mine.exists():
            return False
        moved = given_up.move(
            State.RUNNING,
            actor=worker_id,
            note="the worker is back and still runs it",
            worker_id=worker_id,
            lease_expires_at=seconds_from_now(settings.THRESHOLDS.orphan_timeout_seconds),
            not_before=None,
            error=None,
            restarts_used=Case(  # to give it up cost one
                When(state=State.RESUMING, then=F("restarts_used") - 1),
                default=F("restarts_used"),
                output_field=IntegerField(),
            ),
            stop_requested=Case(  # what a person asked for is asked for still
                When(stop_requested_at__isnull=False, then=Value(Operation.Stop.CANCEL)),
                default=Value(""),
            ),
        )
        if moved:
            mine.update(outcome=Attempt.Outcome.RUNNING, ended_at=None, reason="", note="")
    return moved


def _why_not(worker_id: str, key: Key) -> str:
    """Return why a worker does not own an attempt."""
    operation_id, attempt = key
    row = Operation.objects.filter(pk=operation_id).values("attempt", "state").first()
    if row is None:
        logger.warning("worker %s reports unknown operation %s", worker_id, operation_id[:64])
        return "UNKNOWN_OPERATION"
    if row["attempt"] != attempt or row["state"] == State.RUNNING:
        return "SUPERSEDED"
    return str(row["state"])
