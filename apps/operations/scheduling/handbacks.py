"""Requests of the platform to have running attempts saved at a safe point and queued again.

A request is part of the row of the attempt, so the next attempt is free of it. The worker reads
it together with the stop requests.
"""

from collections.abc import Collection

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from apps.operations.lifecycle import Handback, Reason, State
from apps.operations.models import Attempt, Operation
from trainops.clock import DatabaseNow

Key = tuple[str, int]  # operation, attempt
_IS_OUTDATED = Q(preempted_for__gt="") & ~Exists(
    Operation.objects.waiting().filter(pk=OuterRef("preempted_for"))
)


def request(
    operation: Operation, handback: Handback, *, actor: str, preempted_for: str = ""
) -> bool:
    """Request the hand-back of the current attempt.

    preempted_for: the operation that it makes room for. False if the attempt has ended, its lease
    has expired, or it is stopping already.
    """
    with transaction.atomic():
        owned = Operation.objects.owned(operation.pk, operation.attempt)
        running = owned.filter(stop_requested="", lease_expires_at__gte=DatabaseNow())
        if running.select_for_update().first() is None:
            return False
        attempts = Attempt.objects.filter(operation_id=operation.pk, number=operation.attempt)
        is_new = attempts.filter(ended_at=None, handback_reason="").update(
            handback_reason=handback.reason,
            handback_note=handback.note,
            preempted_for=preempted_for,
        )
        if is_new:
            operation.record("HANDBACK_REQUESTED", actor=actor, note=handback.note)
    return bool(is_new)


def requested(held: Collection[Key]) -> dict[Key, Handback]:
    """Return what is requested of these attempts: not for operations that wait no longer."""
    if not held:
        return {}
    asked = Attempt.objects.filter(
        operation__in={operation_id for operation_id, _ in held},
        number=F("operation__attempt"),
        operation__state=State.RUNNING,
    ).exclude(handback_reason="")
    columns = "operation_id", "number", "handback_reason", "handback_note"
    rows = asked.exclude(_IS_OUTDATED).order_by().values_list(*columns)
    found = {(pk, number): _handback(reason, note) for pk, number, reason, note in rows}
    return {key: each for key, each in found.items() if key in held}


def of_attempt(operation_id: str, attempt: int) -> Handback | None:
    """Return what was requested of an attempt."""
    row = Attempt.objects.filter(operation_id=operation_id, number=attempt)
    asked = row.exclude(handback_reason="").values_list("handback_reason", "handback_note").first()
    return _handback(*asked) if asked else None


def _handback(reason: str, note: str) -> Handback:
    """Return a request; one for a reason of a newer version is like a stop of the worker."""
    if reason in Reason.values:
        return Handback(Reason(reason), note)
    return Handback(Reason.SHUTDOWN, f"{reason}: {note}")


def withdraw(*, actor: str = "system") -> int:
    """Withdraw requests whose operation waits no longer."""
    return withdraw_all(Attempt.objects.filter(_IS_OUTDATED), actor=actor)


def withdraw_all(requests: QuerySet[Attempt], *, actor: str) -> int:
    """Withdraw requests; what a worker has begun to save stays."""
    num_withdrawn = 0
    requests = requests.filter(ended_at=None).exclude(handback_reason="")
    for attempt in requests.select_related("operation"):
        with transaction.atomic():
            # Locked first, as in `request`.
            row = Operation.objects.filter(pk=attempt.operation_id)
            row.select_for_update().values_list("pk", flat=True).first()
            is_withdrawn = requests.filter(pk=attempt.pk).update(
                handback_reason="", handback_note="", preempted_for=""
            )
            if is_withdrawn:
                operation, note = attempt.operation, attempt.handback_note
                operation.record("HANDBACK_WITHDRAWN", actor=actor, note=note)
        num_withdrawn += is_withdrawn
    return num_withdrawn
