"""Reservations: operations of several processes or nodes are not overtaken forever by small ones.

Where one of the first does not fit, as many workers as it needs take nothing that comes after it,
until enough of their slots are free. One that too few workers could compute reserves nothing, nor
does one whose share is used up.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from django.conf import settings
from django.db.models import Q

from apps.operations.models import Attempt, Node, Operation, OperationQuerySet
from apps.operations.placement import Need, Offer, ServingWorker
from apps.operations.scheduling import gangs, queue_status
from apps.operations.scheduling.blocking import WaitingOperation, able
from apps.operations.scheduling.shares import Shares, current

MAX_LOOKED_AT = 20  # operations of several processes or nodes, the next first


def available(worker_id: str, offer: Offer, shares: Shares) -> OperationQuerySet:
    """Return what a worker may claim now, the next first."""
    on_gpus = any(each.devices for each in offer.free_slots)
    fitting = Operation.objects.due().fitting(offer).filter(shares.allowed(on_gpus=on_gpus))
    has_gangs = offer.is_node and Operation.objects.due().gangs().exists()
    known = queue_status.workers() if has_gangs else []
    if has_gangs:
        fitting = gangs.without_incomplete(fitting, worker_id, known, shares)
    reserved_for = _reserved_for(worker_id, offer, known, shares)
    if reserved_for is None:
        return fitting.next_first(*shares.order)
    # By age alone: operations of owners with less use could overtake it forever.
    sooner = fitting.sooner_than(reserved_for.priority, reserved_for.queued_at)
    return (sooner | fitting.filter(takes_slot=False)).next_first(*shares.order)


def is_any_available(worker_id: str, offer: Offer) -> bool:
    """Whether a worker may claim something now; one query if nothing that is due fits."""
    fitting = Operation.objects.due().fitting(offer)
    return fitting.exists() and available(worker_id, offer, current()).exists()


def _reserved_for(
    worker_id: str, offer: Offer, known: Sequence[ServingWorker], shares: Shares
) -> Operation | None:
    """Return the first operation that this worker makes room for.

    known: all workers; empty where no operation of several nodes is due.
    """
    whole = offer.all_slots
    if whole is None or (whole.num_slots < 2 and not known):
        return None
    allowed = shares.allowed(on_gpus=bool(whole.devices))
    possible = Operation.objects.due().fitting(replace(offer, free_slots=[whole])).filter(allowed)
    several = possible.filter(
        Q(nodes=1, processes__gt=1) | Q(nodes__gt=1, min_nodes__lte=len(known))
    ).next_first(*shares.order)[:MAX_LOOKED_AT]
    uncertain = [each for each in several if each.nodes > 1 or not offer.allows(each.need)]
    if uncertain and not known:
        known = queue_status.workers()
    freed = freed_for(uncertain)
    for operation in uncertain:
        is_complete = operation.nodes == 1 or gangs.others(operation, worker_id, known) is not None
        fits = is_complete and offer.allows(operation.need)
        if not fits and _is_near(worker_id, operation, known, freed):
            return operation
    return None


def needs_several(operation: Operation) -> bool:
    """Whether workers make room for an operation at all."""
    return operation.processes > 1 or operation.nodes > 1


def freed_for(waiting: Sequence[Operation]) -> Mapping[str, Collection[str]]:
    """Return by operation the workers on which slots are freed for it, or were since it waits."""
    found: dict[str, set[str]] = defaultdict(set)
    if not (waiting and settings.THRESHOLDS.preempt_after_seconds):
        return found
    since = {each.pk: each.queued_at for each in waiting}
    is_of_this_wait = Q(ended_at=None) | Q(ended_at__gte=min(since.values()))
    attempts = Attempt.objects.filter(is_of_this_wait, preempted_for__in=since).order_by()
    columns = "preempted_for", "ended_at", "operation_id", "number", "worker_id"
    freed_by: dict[tuple[str, int], str] = {}
    for waiting_id, ended_at, *key, worker_id in attempts.values_list(*columns):
        if ended_at is None or ended_at >= since[waiting_id]:
            found[waiting_id].add(worker_id)
            freed_by[key[0], key[1]] = waiting_id
    if freed_by:
        nodes = Node.objects.filter(operation__in={pk for pk, _ in freed_by}).order_by()
        for *key, worker_id in nodes.values_list("operation_id", "attempt", "worker_id"):
            if waiting_id := freed_by.get((key[0], key[1])):
                found[waiting_id].add(worker_id)
    return found


def workers_for(
    operation: Operation, known: Sequence[ServingWorker], freed: Mapping[str, Collection[str]]
) -> set[str]:
    """Return the workers that make room for an operation: the fewest slots and GPUs to free.

    Those on which other operations are preempted for it come first. Where there are too few
    workers for all its nodes, none makes room.
    """
    workers = able(WaitingOperation(operation.kind, operation.queue, operation.need), known)
    groups = [workers]
    if operation.nodes > 1 and operation.device != "cpu":  # all compute on GPUs, or none does
        groups = [[one for one in workers if bool(one.gpus) == each] for each in (True, False)]
    preferred = freed.get(operation.pk, ())
    found: set[str] = set()
    for group in groups:
        if len(group) >= operation.min_nodes:
            by_missing = sorted(
                group,
                key=lambda each: (
                    each.worker_id not in preferred,
                    _num_missing(operation.need, each),
                    each.worker_id,
                ),
            )
            found |= {each.worker_id for each in by_missing[: operation.min_nodes]}
    return found


def _is_near(
    worker_id: str,
    operation: Operation,
    known: Sequence[ServingWorker],
    freed: Mapping[str, Collection[str]],
) -> bool:
    """Whether this worker makes room for the operation."""
    found = workers_for(operation, known, freed)
    return worker_id in found or (operation.nodes == 1 and not found)  # not known yet


def _num_missing(need: Need, worker: ServingWorker) -> int:
    slots = need.processes - (worker.slots - worker.num_running)
    if need.device == "cpu" or not worker.gpus:
        return slots
    return max(slots, need.processes - len(worker.free_gpus))
