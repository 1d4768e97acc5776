"""Which workers there are and how they are: the service behind the worker endpoints.

Celery's workers call it in their own process, others over HTTP. What a worker says of its attempts
is heard in `reports`.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Q

from apps.operations.lifecycle import State
from apps.operations.models import Attempt, Operation
from apps.workers.load import MachineLoad
from apps.workers.load import record as record_load
from apps.workers.models import LOCAL, Worker
from trainops.clock import DatabaseNow, seconds_from_now
from trainops.errors import DomainError
from trainops.http.models import Token

logger = logging.getLogger(__name__)


class WorkerNotFound(DomainError):
    """The registry does not know it: it is to register again, with what it runs."""

    def __init__(self, worker_id: str) -> None:
        super().__init__(
            "WORKER_NOT_FOUND",
            f"There is no worker {worker_id[:120]!r}; register the worker again.",
            {"worker_id": worker_id[:120]},
            status=404,
        )


@dataclass(frozen=True, slots=True)
class HeartbeatResponse:
    """What a heartbeat is answered with."""

    is_draining: bool


def register(
    *,
    worker_id: str,
    worker_type: str = "celery",
    endpoint_url: str = "",
    host: str = "",
    pid: int | None = None,
    process: Mapping[str, object] | None = None,
    kinds: Iterable[str] = (),
    labels: Iterable[str] = (),
    slots: int = 1,
    capabilities: Mapping[str, object] | None = None,
    num_running: int = 0,
    current_operation_id: str = "",
    last_error: str | None = None,
    is_draining: bool = False,
    ends_in_seconds: float | None = None,
    idle_exit_seconds: float | None = None,
) -> Worker:
    """Write the worker down, or anew; the same call any number of times leaves one row.

    A worker that a person is draining keeps draining; when it first registered is kept, too.
    """
    values = {
        "worker_type": worker_type,
        "endpoint_url": endpoint_url,
        "host": host,
        "pid": pid,
        "process": dict(process or {}),
        "kinds": list(kinds),
        "labels": list(labels),
        "slots": slots,
        "capabilities": dict(capabilities or {}),
        "num_running": num_running,
        "current_operation_id": current_operation_id,
        "heartbeat_at": DatabaseNow(),
        "ends_at": None if ends_in_seconds is None else seconds_from_now(ends_in_seconds),
        "idle_exit_seconds": idle_exit_seconds,
        **({} if last_error is None else {"last_error": last_error}),
        **({"is_draining": True} if is_draining else {}),
    }
    rows = Worker.objects.all()
    if worker_type != LOCAL:
        rows = rows.exclude(worker_type=LOCAL)  # also where it registered a moment ago
    try:
        _, is_new = rows.update_or_create(worker_id=worker_id, defaults=values)
    except IntegrityError:
        raise WorkerIsLocal(worker_id) from None
    if is_new:
        logger.info("worker %s registered: %s, %d slots", worker_id, host or endpoint_url, slots)
    return get(worker_id)


class WorkerIsLocal(DomainError):
    """What HTTP says in the name of a worker that is a process of this installation."""

    def __init__(self, worker_id: str) -> None:
        super().__init__(
            "PERMISSION_DENIED",
            f"{worker_id[:120]!r} is a worker of this installation; "
            "register under another worker_id.",
            {"worker_id": worker_id[:120]},
            status=403,
        )


class WorkerOfAnotherToken(DomainError):
    """The request names a worker that its token does not act for."""

    def __init__(self, worker_id: str, problem: str) -> None:
        super().__init__("PERMISSION_DENIED", problem, {"worker_id": worker_id[:120]}, status=403)


def remote_host(worker_id: str) -> str:
    """Return the host of attempts over HTTP; the one that a worker names is not verified."""
    return f"{worker_id} over HTTP"


def require_remote(worker_id: str) -> None:
    """Raise WorkerIsLocal for a worker of this installation, also one that has left."""
    row = Worker.objects.filter(pk=worker_id).values("worker_type").first()
    attempts = Attempt.objects.filter(worker_id=worker_id).exclude(host=remote_host(worker_id))
    if attempts.exists() if row is None else row["worker_type"] == LOCAL:
        raise WorkerIsLocal(worker_id)


def require_speaker(token: Token | None, worker_id: str) -> None:
    """Raise a DomainError if the caller does not act for the worker.

    Args:
        token: the caller's worker token; None for an admin, who acts for every remote worker.
    """
    require_remote(worker_id)
    if token is None or token.worker_id == worker_id:
        return
    if token.worker_id:
        problem = f"got worker_id {worker_id[:120]!r}; allowed with this token: {token.worker_id!r}"
    elif not is_known(worker_id=worker_id):
        raise WorkerNotFound(worker_id)
    else:
        problem = "This token belongs to no worker yet; register with it first."
    raise WorkerOfAnotherToken(worker_id, problem)


def bind(token: Token | None, worker_id: str) -> None:
    """Make a worker token the only one of this worker, unless it or the worker has another.

    Raises:
        WorkerIsLocal, WorkerOfAnotherToken.
    """
    if token is None or token.worker_id:
        require_speaker(token, worker_id)
        return
    require_remote(worker_id)
    try:
        with transaction.atomic():
            Token.objects.filter(worker_id=worker_id, expiry__lte=DatabaseNow()).delete()
            is_bound = Token.objects.filter(pk=token.pk, worker_id="").update(worker_id=worker_id)
    except IntegrityError:
        problem = (
            f"Another token belongs to {worker_id!r}: use that token, or revoke it first; "
            "expired tokens are replaced."
        )
        raise WorkerOfAnotherToken(worker_id, problem) from None
    token.refresh_from_db(fields=["worker_id"])
    if not is_bound:
        require_speaker(token, worker_id)  # another request has just bound it


def asks_for_work(
    *, worker_id: str, kinds: Iterable[str], labels: Iterable[str], dataset_problem: str = ""
) -> Worker:
    """Note that a worker asks for work over HTTP, and of which kinds. Raises WorkerNotFound.

    `dataset_problem`: of the process that it asks, from which it gets the datasets.
    """
    Worker.objects.filter(pk=worker_id).update(
        asked_at=DatabaseNow(),
        heartbeat_at=DatabaseNow(),
        kinds=list(kinds),
        labels=list(labels),
        dataset_problem=dataset_problem,
    )
    return get(worker_id)


def serves(*, worker_id: str) -> None:
    """Note that a worker computes over HTTP: it need not ask for more to be counted."""
    Worker.objects.filter(pk=worker_id).update(asked_at=DatabaseNow(), heartbeat_at=DatabaseNow())


def has_free_slot(worker: Worker) -> bool:
    """Whether the worker may take one more operation, by the rows."""
    running = Operation.objects.filter(state=State.RUNNING, worker_id=worker.pk)
    return not worker.is_draining and running.count() < worker.slots


def forget_gone() -> int:
    """Delete the rows of workers that have been silent for a day; their history is in attempts."""
    old = Worker.objects.filter(heartbeat_at__lt=DatabaseNow() - timedelta(days=1))
    return old.delete()[0]


def release_lost() -> int:
    """Record that workers without a heartbeat for a lease, and without a lease, run nothing."""
    limit = seconds_from_now(-settings.THRESHOLDS.orphan_timeout_seconds)
    owners = Operation.objects.filter(state=State.RUNNING).values("worker_id")
    busy = Q(num_running__gt=0) | ~Q(current_operation_id="")
    lost = Worker.objects.filter(busy, heartbeat_at__lt=limit).exclude(pk__in=owners)
    return lost.update(num_running=0, current_operation_id="")


def is_known(*, worker_id: str) -> bool:
    return Worker.objects.filter(pk=worker_id).exists()


def get(worker_id: str) -> Worker:
    """Return the worker with its `status`. Raises WorkerNotFound."""
    worker = Worker.objects.with_status().filter(pk=worker_id).first()
    if worker is None:
        raise WorkerNotFound(worker_id)
    return worker


def heartbeat(
    *,
    worker_id: str,
    num_running: int = 0,
    current_operation_id: str = "",
    last_error: str | None = None,
    load: MachineLoad | None = None,
) -> HeartbeatResponse | None:
    """Note on the database's clock that it lives; None where it is unknown and is to register.

    `last_error` is what went wrong last; without it, what was reported before stands.
    """
    known = Worker.objects.filter(pk=worker_id)
    if not known.update(
        heartbeat_at=DatabaseNow(),
        num_running=num_running,
        current_operation_id=current_operation_id,
        **({} if last_error is None else {"last_error": last_error}),
    ):
        return None
    if load is not None:
        record_load(worker_id, load)
    is_draining = known.values_list("is_draining", flat=True).first()
    return None if is_draining is None else HeartbeatResponse(is_draining)


def deregister(*, worker_id: str) -> bool:
    """Forget a worker that has left; False where it was not known. Its history is in attempts."""
    num_deleted, _ = Worker.objects.filter(pk=worker_id).delete()
    return bool(num_deleted)


def drained_by(username: str) -> str:
    """Return the reason for a worker that a user drains."""
    return f"by {username}"


def forget_user(sender: object, instance: User, **_: object) -> None:
    """Take the name of a deleted account out of the reasons."""
    drained = Worker.objects.filter(drain_reason=drained_by(instance.username))
    drained.update(drain_reason=drained_by("a deleted user"))


def drain(*, worker_id: str, reason: str = "") -> Worker:
    """Have it finish or save what it runs and take nothing new.

    Raises:
        WorkerNotFound: it left, or was never there.
    """
    Worker.objects.filter(pk=worker_id).update(is_draining=True, drain_reason=reason)
    return get(worker_id)


def undrain(*, worker_id: str) -> Worker:
    """Have it take work again, and forgive what crashed under it before.

    Raises:
        WorkerNotFound: it left, or was never there.
    """
    Worker.objects.filter(pk=worker_id).update(
        is_draining=False, drain_reason="", trusted_since=DatabaseNow()
    )
    return get(worker_id)
