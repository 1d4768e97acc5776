"""The queue status of waiting operations, from the current rows.

The worker registry registers `ask_workers` here, so this package imports nothing above it.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypedDict, cast

from django.conf import settings
from django.db.models import F
from django.utils import timezone

from apps.operations.lifecycle import WAITING, State
from apps.operations.models import Attempt, Node, Operation
from apps.operations.placement import Need, ServingWorker
from apps.operations.scheduling import shares
from apps.operations.scheduling.blocking import (
    BlockingReason,
    QueueStatus,
    WaitingOperation,
    queue_status_of,
)
from apps.operations.scheduling.shares import Shares


class NeedRow(TypedDict):
    """The columns that say what an operation needs; see `Need`."""

    device: str
    gpu_memory_bytes: int
    memory_bytes: int
    checkpoint_bytes: int
    takes_slot: bool
    processes: int
    nodes: int
    min_nodes: int
    first_checkpoint_seconds: int | None
    uses_datasets: bool


class BlockedRow(NeedRow):
    """The columns that say which workers can take an operation."""

    kind: str
    queue: str


class BlockedGroup(BlockedRow, total=False):
    """Those of operations that are blocked alike; of whose shares, where one has limits."""

    owner_id: int | None
    project: str


class WaitingRow(BlockedRow):
    """All columns that the queue status follows from."""

    id: str
    state: str
    owner_id: int | None
    project: str
    priority: int
    queued_at: datetime
    not_before: datetime | None
    reason: str


NEED_FIELDS = tuple(NeedRow.__annotations__)
FIELDS = tuple(WaitingRow.__annotations__)
MAX_AHEAD = 1000  # counted no further

AskWorkers = Callable[[], Sequence[ServingWorker]]
LockWorkers = Callable[[Collection[str] | None], None]
_registered: list[AskWorkers] = []
_locks: list[LockWorkers] = []


def register(ask_workers: AskWorkers, lock_workers: LockWorkers | None = None) -> None:
    """Register a source of workers, and what locks their rows until the transaction ends.

    Called from AppConfig.ready; idempotent.
    """
    if ask_workers not in _registered:
        _registered.append(ask_workers)
    if lock_workers is not None and lock_workers not in _locks:
        _locks.append(lock_workers)


def lock_workers(worker_ids: Collection[str] | None) -> None:
    """Lock workers in one order until the transaction ends; None: all of them.

    Only one claim at a time may promise the slots of a worker.
    """
    for lock in _locks:
        lock(worker_ids)


def of(row: WaitingRow) -> QueueStatus | None:
    """Return what one operation waits for, with its place in the line; None if it does not wait."""
    if row["state"] not in WAITING:
        return None
    known = shares.current()
    status = _explained(row, workers(), known, num_ahead=_num_ahead(row, known))
    if status.code is BlockingReason.WORKERS_BUSY and (number := _num_preempted(row["id"])):
        saved = "1 operation" if number == 1 else f"{number} operations"
        message = f"{status.message} {saved} of lower priority will be saved to make room for it."
        return replace(status, message=message)
    return status


def of_operation(operation: Operation) -> QueueStatus | None:
    return of(cast(WaitingRow, {name: getattr(operation, name) for name in FIELDS}))


def of_all(rows: Iterable[WaitingRow]) -> Mapping[str, QueueStatus]:
    """Return by id what those of them that wait are waiting for; a few queries, or none.

    Without their places in the line, which would be a query for each.
    """
    waiting = [row for row in rows if row["state"] in WAITING]
    if not waiting:
        return {}
    known, known_shares = workers(), shares.current(has_order=False)
    return {row["id"]: _explained(row, known, known_shares) for row in waiting}


def workers() -> list[ServingWorker]:
    """Return every worker that there is, with what it runs according to the operations' rows.

    These know of a claim at once; what a worker says of itself is as old as its heartbeat.
    """
    current = Attempt.objects.filter(operation__state=State.RUNNING, number=F("operation__attempt"))
    of_nodes = Node.objects.current().filter(ended_at=None)
    columns = "worker_id", "device", "operation__takes_slot", "operation__processes"
    rows = current.order_by().values_list(*columns)
    rows = rows.union(of_nodes.order_by().values_list(*columns), all=True)
    devices: dict[str, list[str]] = defaultdict(list)
    taken: dict[str, int] = defaultdict(int)
    waiting: dict[str, int] = defaultdict(int)
    for worker_id, device, takes_slot, processes in rows:
        if takes_slot:
            taken[worker_id] += processes
            devices[worker_id] += device.split(",")
        else:
            waiting[worker_id] += 1
    return [
        replace(
            worker,
            num_running=max(worker.num_running, taken[worker.worker_id]),
            num_waiting_slots=waiting[worker.worker_id],
            held=frozenset(devices[worker.worker_id]),
        )
        for ask in _registered
        for worker in ask()
    ]


def obstacle(
    row: BlockedGroup, known: Sequence[ServingWorker], known_shares: Shares
) -> QueueStatus:
    """Return what a waiting operation waits for, pauses and its place in the line left aside."""
    waiting = WaitingOperation(
        kind=row["kind"],
        label=row["queue"],
        need=_need(row),
        allowances=known_shares.of(row.get("owner_id"), row.get("project", "")),
    )
    return queue_status_of(waiting, known, moment=timezone.now())


def _explained(
    row: WaitingRow,
    known: Sequence[ServingWorker],
    known_shares: Shares,
    *,
    num_ahead: int | None = None,
) -> QueueStatus:
    not_before = row["not_before"]
    waiting = WaitingOperation(
        kind=row["kind"],
        label=row["queue"],
        need=_need(row),
        paused_until=timezone.localtime(not_before) if not_before else None,
        reason=row["reason"],
        num_ahead=num_ahead,
        allowances=known_shares.of(row["owner_id"], row["project"]),
    )
    return queue_status_of(waiting, known, moment=timezone.now())


def _need(row: NeedRow) -> Need:
    return Need(
        device=row["device"],
        gpu_memory_bytes=row["gpu_memory_bytes"],
        memory_bytes=row["memory_bytes"],
        checkpoint_bytes=row["checkpoint_bytes"],
        takes_slot=row["takes_slot"],
        processes=row["processes"],
        nodes=row["nodes"],
        min_nodes=row["min_nodes"],
        first_checkpoint_seconds=row["first_checkpoint_seconds"],
        uses_datasets=row["uses_datasets"],
    )


def _num_preempted(operation_id: str) -> int:
    """Return how many running operations are saved to make room for an operation."""
    if not settings.THRESHOLDS.preempt_after_seconds:
        return 0
    return Attempt.objects.filter(preempted_for=operation_id, ended_at=None).count()


def _num_ahead(row: WaitingRow, known: Shares) -> int:
    """Return how many of the same kind and label, for a place of the same sort, go first."""
    due = Operation.objects.due().filter(
        kind=row["kind"], queue=row["queue"], takes_slot=row["takes_slot"]
    )
    places = known.places(row["owner_id"], row["project"])
    return due.sooner_than(row["priority"], row["queued_at"], *places)[:MAX_AHEAD].count()
