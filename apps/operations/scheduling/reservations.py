"""Reservations: operations of several processes are not overtaken forever by small ones.

Where the first of them does not fit, one worker that could run it takes nothing that comes after
it, until enough of its slots are free.
"""

from dataclasses import replace

from apps.operations.models import Operation, OperationQuerySet
from apps.operations.placement import Need, Offer, ServingWorker
from apps.operations.scheduling import queue_status
from apps.operations.scheduling.blocking import WaitingOperation, able


def available(worker_id: str, offer: Offer) -> OperationQuerySet:
    """Return what a worker may claim now."""
    fitting = Operation.objects.due().fitting(offer)
    reserved_for = _reserved_for(worker_id, offer)
    if reserved_for is None:
        return fitting
    sooner = fitting.sooner_than(reserved_for.priority, reserved_for.queued_at)
    return sooner | fitting.filter(takes_slot=False)


def _reserved_for(worker_id: str, offer: Offer) -> Operation | None:
    """Return the operation that this worker makes room for."""
    whole = offer.all_slots
    if whole is None or whole.num_slots < 2:
        return None
    possible = Operation.objects.due().fitting(replace(offer, free_slots=[whole]))
    first = possible.filter(processes__gt=1).next_first().first()
    if first is None or offer.allows(first.need):
        return None
    return first if _is_nearest(worker_id, first) else None


def _is_nearest(worker_id: str, operation: Operation) -> bool:
    """Whether this worker has the fewest slots and GPUs to free; a worker that is known."""
    waiting = WaitingOperation(operation.kind, operation.queue, operation.need)
    workers = able(waiting, queue_status.workers())
    nearest = min(
        workers, key=lambda each: (_num_missing(operation.need, each), each.worker_id), default=None
    )
    return nearest is None or nearest.worker_id == worker_id


def _num_missing(need: Need, worker: ServingWorker) -> int:
    slots = need.processes - (worker.slots - worker.num_running)
    if need.device == "cpu" or not worker.gpus:
        return slots
    free = [each for each in worker.gpus if each.id not in worker.held]
    return max(slots, need.processes - len(free))
