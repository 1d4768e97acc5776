"""Preemption: running operations of lower priority make room for a waiting one.

Only where no worker is free for it. As few as possible of the least important ones are saved and
queued again, at most once in `preempt_after_seconds` for the same waiting operation. Its priority
keeps the freed slots for it, and reservations do where it needs several (`reservations`).
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Exists, F, Max, Min, OuterRef, Q, QuerySet
from django.utils import timezone

from apps.checkpoints.models import Checkpoint
from apps.operations.lifecycle import Handback, Reason, State
from apps.operations.models import Attempt, Node, Operation, OperationQuerySet, Share
from apps.operations.placement import ServingWorker
from apps.operations.scheduling import handbacks, queue_status, reservations, shares
from apps.operations.scheduling.blocking import (
    BlockingReason,
    WaitingOperation,
    able,
    alike,
    free,
    queue_status_of,
)
from apps.operations.scheduling.shares import Shares
from apps.operations.sharing import Allowance
from trainops.clock import DatabaseNow

MAX_LOOKED_AT = 200  # waiting operations for which nothing is preempted yet, the next first
COLUMNS = (
    "number",
    "worker_id",
    "device",
    "started_at",
    "operation__attempt",
    "operation__priority",
    "operation__processes",
)  # of running attempts; there may be thousands
LONG = ("config", "config_given", "metrics", "extremes", "result", "error")


class _Changed(Exception):
    """One of the chosen operations has ended, or is stopping already."""


@dataclass(slots=True)
class UsedSlots:
    """What some attempts hold, by worker."""

    slots: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    devices: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add(self, worker_id: str, processes: int, device: str) -> None:
        self.slots[worker_id] += processes
        self.devices[worker_id] |= set(device.split(",")) - {""}

    @classmethod
    def sum(cls, of: "Iterable[UsedSlots]") -> "UsedSlots":
        total = cls()
        for each in of:
            for worker_id, number in each.slots.items():
                total.slots[worker_id] += number
                total.devices[worker_id] |= each.devices[worker_id]
        return total


@dataclass(frozen=True, slots=True)
class Preemptible:
    """A running operation that may be preempted, on all its nodes."""

    operation: Operation
    used: UsedSlots

    @property
    def num_slots(self) -> int:
        return sum(self.used.slots.values())


def preempt(*, actor: str) -> int:
    """Request hand-backs for what waits; return for how many operations."""
    if not settings.THRESHOLDS.preempt_after_seconds:
        return 0
    handbacks.withdraw(actor=actor)
    running = Operation.objects.filter(state=State.RUNNING, takes_slot=True)
    lowest = running.aggregate(lowest=Min("priority"))["lowest"]
    if lowest is None:
        return 0
    above = Operation.objects.due().filter(takes_slot=True, priority__gt=lowest)
    highest = above.aggregate(highest=Max("priority"))["highest"]
    if highest is None:
        return 0
    candidates = _candidates(highest)
    return _make_room(above, candidates, actor) if candidates else 0


def _make_room(above: OperationQuerySet, candidates: Sequence[Preemptible], actor: str) -> int:
    known, workers = shares.current(), queue_status.workers()
    served = set(_recent(above.values_list("pk")).values_list("preempted_for", flat=True))
    outlook = Outlook({each.worker_id: each for each in workers}, known)
    outlook.end(_handed_back())
    num_made = 0
    failed: set[object] = set()  # groups of equal operations for which no hand-backs suffice
    for operation in _looked_at(above, known, workers, served):
        is_served = operation.pk in served
        group = is_served, _group(operation)
        if group in failed or not outlook.is_busy(operation):
            continue
        chosen = [] if is_served else outlook.chosen(operation, candidates)
        if chosen and _request(operation, chosen, actor):
            num_made += 1
            candidates = [each for each in candidates if each not in chosen]
            outlook.end(each.used for each in chosen)
            outlook.place(operation)
            failed.clear()
        else:
            outlook.reserve(operation)
            failed.add(group)
    return num_made


def _looked_at(
    above: OperationQuerySet, known: Shares, workers: Sequence[ServingWorker], served: set[str]
) -> Iterator[Operation]:
    """Yield waiting operations whose shares allow them, the next first, and all served ones.

    Of several processes or nodes, only as many as workers keep freed slots for.
    """
    if known.has_limits:
        above = above.filter(Q(pk__in=served) | _allowed(known, workers))
    num_several = 0
    first = above.next_first(*known.order).defer(*LONG)
    for operation in first[: MAX_LOOKED_AT + len(served)]:
        is_several = reservations.needs_several(operation)
        num_several += is_several
        if not is_several or num_several <= reservations.MAX_LOOKED_AT:
            yield operation


def _allowed(known: Shares, workers: Sequence[ServingWorker]) -> Q:
    """Return the condition of the operations whose shares allow them on one of the workers."""
    allowed = known.allowed(on_gpus=True)
    if all(each.gpus for each in workers):
        return allowed
    return allowed | (Q(device="auto") & known.allowed(on_gpus=False))


def _group(operation: Operation) -> object:
    """Return what two operations have in common for which the same would be preempted."""
    where = operation.kind, operation.queue, operation.need, operation.is_subtask
    return where, operation.owner_id, operation.project, operation.priority


@dataclass(slots=True)
class Outlook:
    """Workers and shares once requested hand-backs are done and what goes first has begun."""

    workers: dict[str, ServingWorker]
    known: Shares
    reserved: set[str] = field(default_factory=set)  # ids of workers that take nothing else

    def is_busy(self, operation: Operation) -> bool:
        """Whether only busy workers keep an operation from starting; if nothing does, place it."""
        waiting = self._waiting(operation)
        code = _reason(waiting, self._able(operation, waiting))
        if code is BlockingReason.SOON:
            self.place(operation)
        return code is BlockingReason.WORKERS_BUSY

    def chosen(
        self, operation: Operation, candidates: Sequence[Preemptible]
    ) -> Sequence[Preemptible]:
        """Return the least important operations whose slots suffice; none if all do not."""
        waiting = self._waiting(operation)
        workers = self._able(operation, waiting)

        def without(ended: Sequence[Preemptible]) -> list[ServingWorker]:
            used = UsedSlots.sum(each.used for each in ended)
            return [_without(each, used) for each in workers]

        def suffice(ended: Sequence[Preemptible]) -> bool:
            return _reason(waiting, without(ended)) is BlockingReason.SOON

        below = [each for each in candidates if each.operation.priority < operation.priority]
        number = bisect_left(range(len(below) + 1), True, key=lambda each: suffice(below[:each]))
        if number > len(below):
            return []
        freed = {each.worker_id for each in free(waiting, without(below[:number]))}
        chosen = [each for each in below[:number] if not freed.isdisjoint(each.used.slots)]
        for each in reversed(chosen[:]):  # the most important first
            rest = [other for other in chosen if other is not each]
            if suffice(rest):
                chosen = rest
        return chosen

    def end(self, used: Iterable[UsedSlots]) -> None:
        """Free what these hold."""
        total = UsedSlots.sum(used)
        for worker_id in total.slots.keys() & self.workers.keys():
            self.workers[worker_id] = _without(self.workers[worker_id], total)

    def place(self, operation: Operation) -> None:
        """Have an operation use the slots and GPUs of free workers, and what its shares allow."""
        waiting, need = self._waiting(operation), operation.need
        workers = alike(waiting, free(waiting, self._able(operation, waiting)))[: need.min_nodes]
        num_gpus = 0
        for worker in workers:
            devices = {each.id for each in need.choose(worker.free_gpus)}
            num_gpus += len(devices)
            self.workers[worker.worker_id] = replace(
                worker,
                num_running=worker.num_running + need.processes,
                held=worker.held | devices,
            )
        num_slots = need.processes * need.min_nodes

        def with_it(allowance: Allowance) -> Allowance:
            slots, gpus = allowance.slots + num_slots, allowance.gpus + num_gpus
            return replace(allowance, slots=slots, gpus=gpus)

        owners, projects = dict(self.known.owners), dict(self.known.projects)
        if (owner := operation.owner_id) is not None:
            owners[owner] = with_it(owners.get(owner, self.known.default))
        if of_project := projects.get(operation.project):
            projects[operation.project] = with_it(of_project)
        self.known = replace(self.known, owners=owners, projects=projects)

    def reserve(self, operation: Operation) -> None:
        """Leave out the workers that take nothing that comes after an operation, if any do."""
        if not reservations.needs_several(operation):
            return
        freed = reservations.freed_for([operation])
        self.reserved |= reservations.workers_for(operation, list(self.workers.values()), freed)

    def _waiting(self, operation: Operation) -> WaitingOperation:
        allowances = self.known.of(operation.owner_id, operation.project)
        return WaitingOperation(
            operation.kind, operation.queue, operation.need, allowances=allowances
        )

    def _able(self, operation: Operation, waiting: WaitingOperation) -> list[ServingWorker]:
        workers = [each for each in self.workers.values() if each.worker_id not in self.reserved]
        if operation.is_subtask:  # workers over HTTP take none
            workers = [each for each in workers if each.is_node]
        return able(waiting, workers)


def _reason(waiting: WaitingOperation, workers: Sequence[ServingWorker]) -> BlockingReason:
    return queue_status_of(waiting, workers, moment=timezone.now()).code


def _without(worker: ServingWorker, ended: UsedSlots) -> ServingWorker:
    """Return a worker as it is once what holds this has ended."""
    num_freed = ended.slots.get(worker.worker_id)
    if not num_freed:
        return worker
    return replace(
        worker,
        num_running=max(0, worker.num_running - num_freed),
        held=worker.held - ended.devices[worker.worker_id],
    )


def _recent(waiting: Sequence[str] | QuerySet[Operation, Any]) -> QuerySet[Attempt]:
    """Return the attempts that make room for these operations, or did a short time ago."""
    since = DatabaseNow() - timedelta(seconds=settings.THRESHOLDS.preempt_after_seconds)
    is_recent = Q(ended_at=None) | Q(ended_at__gt=since)
    return Attempt.objects.filter(is_recent, preempted_for__in=waiting).order_by()


def _handed_back() -> list[UsedSlots]:
    """Return what the running operations hold whose hand-back is requested."""
    requested = Attempt.objects.filter(
        number=F("operation__attempt"),
        operation__state=State.RUNNING,
        operation__takes_slot=True,
        ended_at=None,
    ).exclude(handback_reason="")
    return list(_used(requested.select_related("operation").only(*COLUMNS).order_by()).values())


def _used(attempts: Iterable[Attempt]) -> dict[str, UsedSlots]:
    """Return by operation what these attempts hold on all their nodes."""
    used: dict[str, UsedSlots] = defaultdict(UsedSlots)
    for attempt in attempts:
        processes = attempt.operation.processes
        used[attempt.operation_id].add(attempt.worker_id, processes, attempt.device)
    nodes = Node.objects.current().filter(operation__in=used, ended_at=None)
    columns = "operation_id", "worker_id", "operation__processes", "device"
    for operation_id, *node in nodes.values_list(*columns):
        used[operation_id].add(*node)
    return used


def _candidates(below: int) -> list[Preemptible]:
    """Return the running operations below a priority that may be preempted, the least first.

    Of equal priority, those with the fewest slots go first, and of these those that began last.
    """
    limits = settings.THRESHOLDS
    saved = Checkpoint.objects.healthy().filter(
        operation=OuterRef("operation"), attempt=OuterRef("number")
    )
    attempts = Attempt.objects.filter(
        Exists(saved),
        ~Exists(saved.filter(type=Checkpoint.Type.FINAL)),
        ~_is_protected(),
        Q(operation__total_steps=0) | Q(operation__step__lt=F("operation__total_steps")),
        number=F("operation__attempt"),
        handback_reason="",
        started_at__lte=DatabaseNow() - timedelta(seconds=limits.preempt_after_seconds),
        operation__state=State.RUNNING,
        operation__takes_slot=True,
        operation__stop_requested="",
        operation__lease_expires_at__gte=DatabaseNow(),
        operation__priority__lt=below,
    )
    attempts = attempts.select_related("operation").only(*COLUMNS)
    used = _used(attempts)
    found = [Preemptible(each.operation, used[each.operation_id]) for each in attempts]
    begun = {each.operation_id: each.started_at for each in attempts}
    found.sort(key=lambda each: begun[each.operation.pk], reverse=True)
    return sorted(found, key=lambda each: (each.operation.priority, each.num_slots))


def _is_protected() -> Q:
    """Return the condition of the attempts whose owner or project is never preempted."""
    protected = list(Share.objects.filter(preemptible=False).values_list("owner", "project"))
    owners = [owner for owner, project in protected if not project]
    projects = [project for _, project in protected if project]
    of_owners = Q(operation__owner__isnull=False, operation__owner__in=owners)  # NULL is not IN
    return of_owners | Q(operation__project__in=projects)


def _request(operation: Operation, chosen: Sequence[Preemptible], actor: str) -> bool:
    """Request all hand-backs or none; False where anything has changed meanwhile."""
    handback = Handback(
        Reason.PREEMPTED, f"makes room for {operation.pk} of priority {operation.priority}"
    )
    waiting = Operation.objects.due().filter(pk=operation.pk, attempt=operation.attempt)
    if connection.features.has_select_for_update_skip_locked:
        waiting = waiting.select_for_update(skip_locked=True)  # locked: it is being claimed
    try:
        with transaction.atomic():
            if waiting.first() is None or _recent([operation.pk]).exists():
                return False
            for each in sorted(chosen, key=lambda each: each.operation.pk):  # locked in one order
                if not handbacks.request(
                    each.operation, handback, actor=actor, preempted_for=operation.pk
                ):
                    raise _Changed
            names = ", ".join(f"{one.operation.pk} ({one.operation.priority})" for one in chosen)
            operation.record("PREEMPTS", actor=actor, note=f"operations of lower priority: {names}")
    except _Changed:
        return False
    return True
