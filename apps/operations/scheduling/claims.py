"""Who owns an operation: claim, renew, hand back, end. Every write here is conditional.

An attempt's number is the fencing token. Once another attempt owns the operation, or none does,
every call here with the old number changes nothing and says so.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F

from apps.installation.counters import COUNTERS
from apps.operations.lifecycle import Reason, ReportedError, State
from apps.operations.models import Attempt, Node, Operation, OperationQuerySet
from apps.operations.placement import Offer, ServingWorker
from apps.operations.scheduling import (
    compatibility,
    crash_loops,
    gangs,
    queue_status,
    restarts,
    shares,
)
from apps.operations.scheduling.reservations import available
from apps.operations.scheduling.saved import with_what_was_saved
from apps.operations.scheduling.shares import Shares
from apps.operations.sharing import max_nodes
from trainops.clock import DatabaseNow, seconds_from_now


class Fenced(Exception):
    """This attempt no longer owns its operation."""


def claim(*, worker_id: str, host: str, offer: Offer) -> Operation | None:
    """Take the best waiting operation: highest priority first, then the longest waiting.

    Within a priority, the owner that uses the least in proportion to its weight goes first.
    Only what fits the offer and the shares; what does not holds up nothing behind it, but for
    operations of several processes (see `reservations`). Returns it RUNNING under a new attempt
    with a lease, or None when nothing fits.
    """
    passed: list[str] = []  # by another claim, for too little that is free, or for another version
    while Operation.objects.due().fitting(offer).exclude(pk__in=passed).exists():
        known = shares.current()
        waiting = candidates = available(worker_id, offer, known).exclude(pk__in=passed)
        if connection.features.has_select_for_update_skip_locked:
            # Of its own rows: PostgreSQL locks none of what is joined and may be absent. As an
            # UPDATE locks them: a process that holds rows of workers may insert an event of it.
            candidates = waiting.select_for_update(skip_locked=True, of=("self",), no_key=True)
        if not waiting.exists():  # asked first: SQLite has one lock for all who might write
            return None
        with transaction.atomic():
            candidate = candidates.first()
            if candidate is None:
                return None
            if offer.is_node and _is_promised(candidate, worker_id):
                return None
            nodes = _others(candidate, worker_id)
            if nodes is not None and known.of(candidate.owner_id, candidate.project):
                nodes = _allowed(candidate, nodes, offer, known)
            if nodes is not None and _take(candidate, worker_id, host, offer, nodes):
                return Operation.objects.get(pk=candidate.pk)
        passed.append(candidate.pk)
    return None


def _allowed(
    candidate: Operation, others: Sequence[ServingWorker], offer: Offer, known: Shares
) -> Sequence[ServingWorker] | None:
    """Return as many of the other workers as its shares allow; None: they do not allow it.

    Another claim may have used them up meanwhile; from now on none does.
    """
    allowances = shares.locked(candidate, known)
    on_gpus = bool(offer.choose(candidate.need))
    number = max_nodes(allowances, candidate.need, on_gpus=on_gpus)
    return others[: number - 1] if number else None


def _is_promised(candidate: Operation, worker_id: str) -> bool:
    """Whether another worker has claimed slots of this one meanwhile; from now on none does."""
    queue_status.lock_workers([worker_id] if candidate.nodes == 1 else None)
    return Node.objects.pending(worker_id).exists()


def _others(candidate: Operation, worker_id: str) -> Sequence[ServingWorker] | None:
    """Return the other workers of an operation of several nodes.

    None: too few are free, or the operation is left to workers of another version.
    """
    if compatibility.is_left_to_others(candidate, worker_id):
        return None
    if candidate.nodes == 1:
        return ()
    return gangs.others(candidate, worker_id, queue_status.workers())


def _take(
    candidate: Operation,
    worker_id: str,
    host: str,
    offer: Offer,
    others: Sequence[ServingWorker] = (),
) -> bool:
    names = ", ".join(each.worker_id for each in others)
    taken = Operation.objects.filter(pk=candidate.pk, attempt=candidate.attempt).move(
        State.RUNNING,
        actor=worker_id,
        note=f"attempt {candidate.attempt + 1} on {host}" + (f", with {names}" if others else ""),
        attempt=F("attempt") + 1,  # fences off the previous worker
        worker_id=worker_id,
        lease_expires_at=seconds_from_now(settings.THRESHOLDS.orphan_timeout_seconds),
        progressed_at=DatabaseNow(),
        not_before=None,
        steps_per_second=None,
        num_hints=0,
        hinted_at=None,
    )
    if taken:
        devices = offer.choose(candidate.need)
        Attempt.objects.create(
            operation_id=candidate.pk,
            number=candidate.attempt + 1,
            worker_id=worker_id,
            host=host,
            device=",".join(each.id for each in devices),
            num_nodes=1 + len(others),
        )
        gangs.reserve(candidate, candidate.attempt + 1, others)
    return taken


def renew(worker_id: str, held: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
    """Renew the leases of all that a worker holds; returns those that it still owns."""
    wanted = set(held)
    mine = Operation.objects.filter(
        worker_id=worker_id,
        state=State.RUNNING,
        pk__in=[operation_id for operation_id, _ in wanted],
    )
    mine.update(lease_expires_at=seconds_from_now(settings.THRESHOLDS.orphan_timeout_seconds))
    return wanted & set(mine.values_list("pk", "attempt"))


def finish(
    operation: Operation,
    state: State,
    *,
    outcome: Attempt.Outcome,
    reason: str = Reason.NONE,
    note: str = "",
    **fields: Any,
) -> None:
    """End the operation under its current attempt.

    Raises:
        Fenced: the attempt no longer owns it; nothing was changed.
    """
    with transaction.atomic():
        owned = Operation.objects.owned(operation.pk, operation.attempt)
        if reason == Reason.CANCELLED_BY_PERSON:
            reason = owned.values_list("stop_reason", flat=True).first() or reason
        if not owned.move(state, actor=operation.worker_id, note=note, reason=reason, **fields):
            raise Fenced
        close_attempt(operation, outcome=outcome, reason=reason, note=note)


def restart_or_fail(
    operation: Operation,
    reason: Reason,
    *,
    actor: str,
    note: str,
    outcome: Attempt.Outcome,
    error: ReportedError | None = None,
    owned: OperationQuerySet | None = None,
) -> bool:
    """Put the operation back into the queue, cancel it or fail it: what its policy and people say.

    False where the attempt no longer owns it (or the row is no longer in `owned`): another
    process decided meanwhile.
    """
    if owned is None:
        owned = Operation.objects.owned(operation.pk, operation.attempt)
    decision = restarts.after(
        reason,
        restart=operation.config["restart"],
        restarts_used=operation.restarts_used,
        first_delay=settings.THRESHOLDS.restart_delay_seconds,
        longest_delay=settings.THRESHOLDS.restart_delay_max_seconds,
    )
    reported = error or ReportedError(code=str(reason), message=note, traceback="")
    with transaction.atomic():
        moved = _decide(owned, decision, actor=actor, note=note, reason=reason, error=reported)
        if moved:
            close_attempt(operation, outcome=outcome, reason=reason, note=note)
            if isinstance(decision, restarts.Restart) and reason not in restarts.FREE:
                crash_loops.check(operation, actor=actor, reason=reason)
    return moved


def _decide(
    owned: OperationQuerySet,
    decision: restarts.Restart | restarts.GiveUp,
    *,
    reason: Reason,
    actor: str,
    note: str,
    error: ReportedError,
) -> bool:
    match decision:
        case restarts.GiveUp(note=why):
            note = f"{note} ({why})"
            return owned.move(State.FAILED, actor=actor, note=note, reason=reason, error=error)
        case restarts.Restart(delay_seconds=delay):
            is_free = reason in restarts.FREE
            went_on = owned.filter(stop_requested="").move(
                State.RESUMING,
                actor=actor,
                note=note,
                reason=reason,
                error=None if is_free else error,
                restarts_used=F("restarts_used") + (0 if is_free else 1),
                not_before=seconds_from_now(delay) if delay else None,
            )
            return went_on or _stop(owned, actor=actor, note=f"{note}; a stop was requested")


def _stop(owned: OperationQuerySet, *, actor: str, note: str) -> bool:
    """End an operation of which a stop was requested: it is not restarted, whatever ended it."""
    with transaction.atomic():
        row = owned.exclude(stop_requested="").select_for_update(no_key=True).first()
        if row is None:
            return False
        reason = Reason(row.stop_reason or Reason.CANCELLED_BY_PERSON)
        if row.stop_requested == Operation.Stop.KILL:
            reason = Reason.KILLED_BY_PERSON
        return owned.move(State.CANCELLED, actor=actor, note=note, reason=reason)


def cancel_lost(operation: Operation, reason: Reason, *, actor: str) -> bool:
    """Cancel an operation whose lease has expired: no process of it is left to hear a request.

    Its attempt has ended itself before the lease ran out (see the order of the thresholds). False
    where it is claimed, by a renewal a moment ago or by another attempt.
    """
    note = with_what_was_saved(operation, "no worker holds its lease any more")
    with transaction.atomic():
        silent = Operation.objects.silent().filter(pk=operation.pk, attempt=operation.attempt)
        moved = silent.move(State.CANCELLED, actor=actor, note=note, reason=reason)
        if moved:
            close_attempt(
                operation, outcome=Attempt.Outcome.LOST, reason=Reason.WORKER_LOST, note=note
            )
    return moved


def close_attempt(
    operation: Operation, *, outcome: Attempt.Outcome, reason: str, note: str
) -> None:
    closed = Attempt.objects.filter(
        operation_id=operation.pk, number=operation.attempt, ended_at=None
    ).update(ended_at=DatabaseNow(), outcome=outcome, reason=reason, note=note)
    if closed:
        COUNTERS.add_on_commit(
            "attempts_ended", kind=operation.kind, outcome=str(outcome), reason=str(reason)
        )
