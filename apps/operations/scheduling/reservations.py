"""Reservations: operations of several processes or nodes are not overtaken forever by small ones.

Where the first of them does not fit, as many workers as it needs take nothing that comes after it,
until enough of their slots are free.
"""

from collections.abc import Sequence
from dataclasses import replace

from django.db.models import Q

from apps.operations.models import Operation, OperationQuerySet
from apps.operations.placement import Need, Offer, ServingWorker
from apps.operations.scheduling import gangs, queue_status


def available(worker_id: str, offer: Offer) -> OperationQuerySet:
    """Return what a worker may claim now."""
    fitting = Operation.objects.due().fitting(offer)
    has_gangs = offer.is_node and Operation.objects.due().gangs().exists()
    if has_gangs:
        fitting = gangs.without_incomplete(fitting, worker_id)
    reserved_for = _reserved_for(worker_id, offer, has_gangs=has_gangs)
    if reserved_for is None:
        return fitting
    sooner = fitting.sooner_than(reserved_for.priority, reserved_for.queued_at)
    return sooner | fitting.filter(takes_slot=False)


def _reserved_for(worker_id: str, offer: Offer, *, has_gangs: bool) -> Operation | None:
    """Return the operation that this worker makes room for."""
    whole = offer.all_slots
    if whole is None or (whole.num_slots < 2 and not has_gangs):
        return None
    possible = Operation.objects.due().fitting(replace(offer, free_slots=[whole]))
    first = possible.filter(Q(processes__gt=1) | Q(nodes__gt=1)).next_first().first()
    if first is None or (first.nodes == 1 and offer.allows(first.need)):
        return None
    known = queue_status.workers()
    if offer.allows(first.need) and gangs.others(first, worker_id, known) is not None:
        return None
    return first if _is_near(worker_id, first, known) else None


def _is_near(worker_id: str, operation: Operation, known: Sequence[ServingWorker]) -> bool:
    """Whether this worker is one of those with the fewest slots and GPUs to free.

    Where there are too few workers for all its nodes, none makes room.
    """
    workers = gangs.partners(operation, worker_id, known)
    if operation.nodes == 1 and not workers:
        return True  # this one is not known yet
    if len(workers) < operation.min_nodes:
        return False
    by_missing = sorted(
        workers, key=lambda each: (_num_missing(operation.need, each), each.worker_id)
    )
    return worker_id in [each.worker_id for each in by_missing[: operation.min_nodes]]


def _num_missing(need: Need, worker: ServingWorker) -> int:
    slots = need.processes - (worker.slots - worker.num_running)
    if need.device == "cpu" or not worker.gpus:
        return slots
    return max(slots, need.processes - len(worker.free_gpus))
