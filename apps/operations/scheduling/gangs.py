"""Gangs: the workers that compute an operation of several nodes, claimed all at once or not at all.

One worker claims the operation for all of them, so that no two gangs wait for each other.
"""

import secrets
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta

from django.conf import settings
from django.db.models import Q

from apps.operations.models import Node, Operation, OperationQuerySet
from apps.operations.placement import ServingWorker
from apps.operations.scheduling.blocking import WaitingOperation, able, are_alike, free
from apps.operations.scheduling.shares import Shares
from trainops.clock import DatabaseNow

MAX_LOOKED_AT = 20  # operations of several nodes, the next first


def without_incomplete(
    fitting: OperationQuerySet, worker_id: str, known: Sequence[ServingWorker], shares: Shares
) -> OperationQuerySet:
    """Leave out operations of several nodes for which too few other workers are free."""
    possible = fitting.gangs().filter(min_nodes__lte=len(known))
    several = possible.next_first(*shares.order)[:MAX_LOOKED_AT]
    complete = [each.pk for each in several if others(each, worker_id, known) is not None]
    return fitting.filter(Q(nodes=1) | Q(pk__in=complete))


def partners(
    operation: Operation, worker_id: str, known: Sequence[ServingWorker]
) -> list[ServingWorker]:
    """Return the workers that could compute it together with this one, itself included.

    Whether they are busy or not. All compute on GPUs, or none does, and all have the same versions
    of trainops and torch.
    """
    workers = able(WaitingOperation(operation.kind, operation.queue, operation.need), known)
    mine = next((each for each in known if each.worker_id == worker_id), None)
    if operation.nodes == 1 or mine is None:
        return workers
    return [each for each in workers if are_alike(operation.need, each, mine)]


def others(
    operation: Operation, worker_id: str, known: Sequence[ServingWorker]
) -> list[ServingWorker] | None:
    """Return the workers that would compute it with this one now; None: too few are free.

    None, too, where this one could not compute it. As many as are free, up to its number of nodes.
    Where some that could are busy, it waits for them, but not for long.
    """
    waiting = WaitingOperation(operation.kind, operation.queue, operation.need)
    alike = partners(operation, worker_id, known)
    if worker_id not in [each.worker_id for each in alike]:
        return None
    possible = [each for each in alike if each.worker_id != worker_id]
    found = free(waiting, possible)[: operation.nodes - 1]
    if len(found) < operation.min_nodes - 1:
        return None
    is_waiting_for_more = len(found) < min(operation.nodes - 1, len(possible))
    if is_waiting_for_more and not _has_waited(operation):
        return None
    return found


def _has_waited(operation: Operation) -> bool:
    begun = DatabaseNow() - timedelta(seconds=settings.THRESHOLDS.node_wait_seconds)
    return operation.row.filter(queued_at__lt=begun).exists()


def reserve(operation: Operation, attempt: int, workers: Iterable[ServingWorker]) -> list[Node]:
    """Have these workers take part in an attempt that was just created."""
    token = secrets.token_hex(32)
    return Node.objects.bulk_create(
        Node(
            operation_id=operation.pk,
            attempt=attempt,
            number=number,
            worker_id=worker.worker_id,
            device=",".join(each.id for each in operation.need.choose(worker.free_gpus)),
            token=token,
        )
        for number, worker in enumerate(workers, start=1)
    )


def held(worker_id: str, nodes: Collection[int]) -> set[int]:
    """Return those of the rows that a worker holds whose attempts still own their operations."""
    mine = Node.objects.current().filter(worker_id=worker_id, pk__in=nodes)
    return set(mine.values_list("pk", flat=True))
