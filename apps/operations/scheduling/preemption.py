"""Preemption: running operations of lower priority make room for a waiting one.

Only where no worker is free for it. As few as possible of the least important ones are saved and
queued again, at most once in `preempt_after_seconds` for the same waiting operation. Its priority
keeps the freed slots for it, and reservations do where it needs several (`reservations`).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Exists, F, Min, OuterRef, Q, QuerySet
from django.utils import timezone

from apps.checkpoints.models import Checkpoint
from apps.operations.lifecycle import Handback, Reason, State
from apps.operations.models import Attempt, Node, Operation, Share
from apps.operations.placement import ServingWorker
from apps.operations.scheduling import handbacks, queue_status, shares
from apps.operations.scheduling.blocking import BlockingReason, WaitingOperation, queue_status_of
from apps.operations.scheduling.shares import Shares
from trainops.clock import DatabaseNow

MAX_LOOKED_AT = 200  # waiting operations, the next first
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
    handbacks.withdraw()
    running = Operation.objects.filter(state=State.RUNNING, takes_slot=True)
    lowest = running.aggregate(lowest=Min("priority"))["lowest"]
    if lowest is None:
        return 0
    above = Operation.objects.due().filter(takes_slot=True, priority__gt=lowest)
    if not above.exists():
        return 0
    known = shares.current()
    waiting = list(above.next_first(*known.order).defer(*LONG)[:MAX_LOOKED_AT])
    workers = queue_status.workers()
    candidates = _candidates(max(each.priority for each in waiting))
    served = set(_recent(*waiting).values_list("preempted_for", flat=True))
    num_made = 0
    for operation in waiting:
        if operation.pk in served or not candidates:
            continue
        chosen = _chosen(operation, workers, known, candidates)
        if chosen and _request(operation, chosen, actor):
            num_made += 1
            candidates = [each for each in candidates if each not in chosen]
    return num_made


def workers_of(operation: Operation) -> set[str]:
    """Return the workers on which slots are freed for an operation, or were."""
    if not settings.THRESHOLDS.preempt_after_seconds:
        return set()
    attempts = Attempt.objects.filter(preempted_for=operation.pk).order_by()
    found = set(attempts.values_list("worker_id", flat=True))
    if found:
        same = attempts.filter(operation=OuterRef("operation"), number=OuterRef("attempt"))
        nodes = Node.objects.filter(Exists(same)).order_by()
        found |= set(nodes.values_list("worker_id", flat=True))
    return found


def _recent(*waiting: Operation) -> QuerySet[Attempt]:
    """Return the attempts that make room for these operations, or did a short time ago."""
    since = DatabaseNow() - timedelta(seconds=settings.THRESHOLDS.preempt_after_seconds)
    is_recent = Q(ended_at=None) | Q(ended_at__gt=since)
    return Attempt.objects.filter(
        is_recent, preempted_for__in=[each.pk for each in waiting]
    ).order_by()


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
    used: dict[str, UsedSlots] = defaultdict(UsedSlots)
    for attempt in attempts:
        processes = attempt.operation.processes
        used[attempt.operation_id].add(attempt.worker_id, processes, attempt.device)
    nodes = Node.objects.current().filter(operation__in=used, ended_at=None)
    columns = "operation_id", "worker_id", "operation__processes", "device"
    for operation_id, *node in nodes.values_list(*columns):
        used[operation_id].add(*node)
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


def _chosen(
    operation: Operation,
    workers: Sequence[ServingWorker],
    known: Shares,
    candidates: Sequence[Preemptible],
) -> list[Preemptible]:
    """Return the least important operations whose slots suffice; none where a worker is free."""
    waiting = WaitingOperation(
        operation.kind,
        operation.queue,
        operation.need,
        allowances=known.of(operation.owner_id, operation.project),
    )

    def reason_without(ended: Sequence[Preemptible]) -> BlockingReason:
        left = [_without(each, ended) for each in workers]
        return queue_status_of(waiting, left, moment=timezone.now()).code

    if reason_without([]) is not BlockingReason.WORKERS_BUSY:
        return []
    chosen: list[Preemptible] = []
    for each in candidates:
        if each.operation.priority >= operation.priority:
            return []
        chosen.append(each)
        if reason_without(chosen) is BlockingReason.SOON:
            break
    else:
        return []
    for each in reversed(chosen[:]):  # the most important first
        rest = [other for other in chosen if other is not each]
        if reason_without(rest) is BlockingReason.SOON:
            chosen = rest
    return chosen


def _without(worker: ServingWorker, ended: Iterable[Preemptible]) -> ServingWorker:
    """Return a worker as it is once these operations have ended."""
    used = [each.used for each in ended if worker.worker_id in each.used.slots]
    num_freed = sum(each.slots[worker.worker_id] for each in used)
    freed = {device for each in used for device in each.devices[worker.worker_id]}
    num_running = max(0, worker.num_running - num_freed)
    return replace(worker, num_running=num_running, held=worker.held - freed)


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
            if waiting.first() is None or _recent(operation).exists():
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
