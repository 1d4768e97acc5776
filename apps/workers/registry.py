"""What workers tell the house, and what it tells them: the service behind the worker endpoints.

Celery's workers call it in their own process, others over HTTP. A worker's word alone moves no
operation: only the current attempt of an operation that the orphan detector gave up, and that
nobody claimed since, goes back to RUNNING.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction

from apps.operations import claims
from apps.operations.lifecycle import Reason, State
from apps.operations.models import Attempt, Operation, seconds_from_now
from apps.workers.models import Worker
from trainops.clock import DatabaseNow
from trainops.errors import Refusal

logger = logging.getLogger(__name__)


class WorkerNotFound(Refusal):
    """The registry does not know it: it is to register again, with what it runs."""

    def __init__(self, worker_id: str) -> None:
        super().__init__(
            "WORKER_NOT_FOUND",
            f"There is no worker {worker_id[:120]!r}; a worker that runs registers again.",
            {"worker_id": worker_id[:120]},
            status=404,
        )


@dataclass(frozen=True, slots=True)
class Standing:
    """What a heartbeat is answered with."""

    is_draining: bool


@dataclass(frozen=True, slots=True)
class Order:
    """What a worker is to do with one attempt that it says it runs."""

    operation_id: str
    attempt: int
    directive: str  # "proceed", "cancel", "kill" (a person's wish), "stop" (it is not its own)
    reason: str = ""


def register(
    *,
    worker_id: str,
    worker_type: str = "celery",
    endpoint_url: str = "",
    host: str = "",
    pid: int | None = None,
    kinds: Iterable[str] = (),
    slots: int = 1,
    capabilities: Mapping[str, Any] | None = None,
    num_running: int = 0,
    current_operation_id: str = "",
    is_draining: bool = False,
) -> Worker:
    """Write the worker down, or anew; the same call any number of times leaves one row.

    A worker that a person is draining keeps draining; when it first registered is kept, too.
    """
    told = {
        "worker_type": worker_type,
        "endpoint_url": endpoint_url,
        "host": host,
        "pid": pid,
        "kinds": list(kinds),
        "slots": slots,
        "capabilities": dict(capabilities or {}),
        "num_running": num_running,
        "current_operation_id": current_operation_id,
        "heartbeat_at": DatabaseNow(),
        **({"is_draining": True} if is_draining else {}),
    }
    _, is_new = Worker.objects.update_or_create(worker_id=worker_id, defaults=told)
    if is_new:
        logger.info("worker %s registered: %s, %d slots", worker_id, host or endpoint_url, slots)
    return get(worker_id)


def forget_gone() -> int:
    """Delete the rows of workers that have been silent for a day; their history is in attempts."""
    old = Worker.objects.filter(heartbeat_at__lt=DatabaseNow() - timedelta(days=1))
    return old.delete()[0]


def is_known(*, worker_id: str) -> bool:
    return Worker.objects.filter(pk=worker_id).exists()


def get(worker_id: str) -> Worker:
    """Return the worker with its `status`. Raises WorkerNotFound."""
    worker = Worker.objects.with_status().filter(pk=worker_id).first()
    if worker is None:
        raise WorkerNotFound(worker_id)
    return worker


def heartbeat(
    *, worker_id: str, num_running: int = 0, current_operation_id: str = ""
) -> Standing | None:
    """Note on the database's clock that it lives; None where it is unknown and is to register.

    Leases are renewed by `claims.renew`, which Celery's workers call themselves.
    """
    known = Worker.objects.filter(pk=worker_id)
    if not known.update(
        heartbeat_at=DatabaseNow(),
        num_running=num_running,
        current_operation_id=current_operation_id,
    ):
        return None
    is_draining = known.values_list("is_draining", flat=True).first()
    return None if is_draining is None else Standing(is_draining)


def deregister(*, worker_id: str) -> bool:
    """Forget a worker that has left; False where it was not known. Its history is in attempts."""
    num_deleted, _ = Worker.objects.filter(pk=worker_id).delete()
    return bool(num_deleted)


def drain(*, worker_id: str, is_draining: bool = True) -> Worker:
    """Have it finish or save what it runs and take nothing new; or take work again.

    Raises:
        WorkerNotFound: it left, or was never there.
    """
    Worker.objects.filter(pk=worker_id).update(is_draining=is_draining)
    return get(worker_id)


def sync(*, worker_id: str, running: Iterable[tuple[str, int]]) -> list[Order]:
    """Renew the leases of what a worker still owns, take back what was given up too early.

    Returns one order for each attempt it reported. Superseded attempts and unknown operations are
    to be stopped; their late writes find the fence.
    """
    told = list(running)
    owned = claims.renew(worker_id, told)
    wishes = dict(
        Operation.objects.filter(pk__in=[each for each, _ in owned]).values_list(
            "pk", "stop_requested"
        )
    )
    return [
        Order(*key, wishes.get(key[0]) or "proceed") if key in owned else _disown(worker_id, *key)
        for key in told
    ]


def _disown(worker_id: str, operation_id: str, attempt: int) -> Order:
    if _take_back(worker_id, operation_id, attempt):
        return Order(operation_id, attempt, "proceed", "it was given up too early")
    row = Operation.objects.filter(pk=operation_id).values("attempt", "state").first()
    if row is None:
        logger.warning("worker %s runs %s, which nobody knows", worker_id, operation_id[:64])
        return Order(operation_id, attempt, "stop", "UNKNOWN_OPERATION")
    if row["attempt"] != attempt or row["state"] == State.RUNNING:
        return Order(operation_id, attempt, "stop", "SUPERSEDED")
    return Order(operation_id, attempt, "stop", row["state"])


def _take_back(worker_id: str, operation_id: str, attempt: int) -> bool:
    """Return an attempt that the orphan detector gave up to the worker that still runs it."""
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
            note="its worker is back and still runs it",
            worker_id=worker_id,
            lease_expires_at=seconds_from_now(settings.THRESHOLDS.orphan_timeout_seconds),
            not_before=None,
            error=None,
        )
        if moved:
            mine.update(outcome=Attempt.Outcome.RUNNING, ended_at=None, reason="", note="")
    return moved
