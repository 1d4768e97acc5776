"""Operations that wait for what no worker has."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.db.models import Exists, OuterRef, Q, QuerySet

from apps.checkpoints.models import Checkpoint
from apps.operations import concerns
from apps.operations.attention import OF_WAITING, Attention
from apps.operations.indexes import is_
from apps.operations.lifecycle import State
from apps.operations.models import Operation, OperationQuerySet, Subtask
from apps.operations.placement import ServingWorker
from apps.operations.scheduling import queue_status, shares
from apps.operations.scheduling.blocking import BlockingReason, QueueStatus
from apps.operations.scheduling.queue_status import BlockedGroup
from apps.operations.scheduling.shares import Shares
from trainops.process.protocol import now

NOT_STUCK = frozenset(
    {
        BlockingReason.BUDGET_USED_UP,
        BlockingReason.SHARE_USED_UP,
        BlockingReason.WORKERS_BUSY,
        BlockingReason.SOON,
    }
)
SHARE_FIELDS = ("owner_id", "project")
GROUP_FIELDS = ("kind", "queue", *queue_status.NEED_FIELDS)  # equal: blocked alike
MAX_GROUPS, MAX_CHANGED = 1000, 500  # of one sweep; the next ones do the rest
Key = tuple[tuple[object, ...], BlockingReason]


class StuckWatch:
    """Raises STUCK and LOW_DISK once operations have been blocked for a while.

    What blocks a subtask is raised for its parent, which runs and waits for it.
    Restarts of workers block for seconds what waits; so it counts for how long this process has
    seen an obstacle in each of its sweeps. Operations that ask for the same are one group: the
    number of queries grows with the groups and with what changes.
    """

    def __init__(self, *, clock: Callable[[], float] = now) -> None:
        self.clock = clock
        self._since: dict[Key, float] = {}
        self._checked_at = float("-inf")

    def check(self, *, actor: str) -> int:
        """Raise and clear the concerns of all waiting operations; return how many were raised."""
        limits = shares.current(has_order=False)
        waiting = _groups(Operation.objects.due().whole(), limits)
        subtasks = _groups(Operation.objects.due().subtasks(), limits)
        marked = _groups(_marked().exclude(state=State.RUNNING), limits)
        known = queue_status.workers() if waiting or subtasks or marked else []
        _clear_outdated(marked, known, limits)
        _clear_repaired()
        obstacles = _obstacles(waiting, known, limits)
        of_subtasks = _obstacles(subtasks, known, limits)
        _clear_parents(of_subtasks)
        self._count([*obstacles, *of_subtasks])
        num_raised = 0
        for raise_, obstacle in [
            *((_raise, each) for each in obstacles),
            *((_raise_for_parents, each) for each in of_subtasks),
        ]:
            seconds = self._checked_at - self._since[obstacle.key]
            if seconds >= settings.THRESHOLDS.stuck_after_seconds:
                num_raised += raise_(obstacle, actor, at_most=MAX_CHANGED - num_raised)
        return num_raised

    def _count(self, obstacles: Iterable["Obstacle"]) -> None:
        """Note since when each obstacle is there; a gap between sweeps starts all counts anew."""
        before, self._checked_at = self._checked_at, self.clock()
        is_gap = self._checked_at - before > 4 * settings.THRESHOLDS.orphan_check_interval_seconds
        since = {} if is_gap else self._since
        self._since = {each.key: since.get(each.key, self._checked_at) for each in obstacles}


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What keeps a group of waiting operations from being taken by any worker."""

    group: BlockedGroup
    status: QueueStatus
    reason: Attention

    @property
    def key(self) -> Key:
        return tuple(self.group.values()), self.status.code


def reason_of(status: QueueStatus) -> Attention | None:
    """Return the reason for attention that an obstacle is; None if a worker will be free."""
    if status.code in NOT_STUCK:
        return None
    return Attention.LOW_DISK if status.code is BlockingReason.DISK_SHORT else Attention.STUCK


def group_fields(known_shares: Shares) -> tuple[str, ...]:
    """Return the columns of which operations with equal values are blocked alike."""
    return (*GROUP_FIELDS, *(SHARE_FIELDS if known_shares.has_limits else ()))


def _groups(operations: OperationQuerySet, known_shares: Shares) -> list[BlockedGroup]:
    fields = group_fields(known_shares)
    return list(operations.order_by().values(*fields).distinct()[:MAX_GROUPS])


def _obstacles(
    groups: Iterable[BlockedGroup], known: Sequence[ServingWorker], known_shares: Shares
) -> list[Obstacle]:
    found = [(group, queue_status.obstacle(group, known, known_shares)) for group in groups]
    return [
        Obstacle(group, status, reason)
        for group, status in found
        if (reason := reason_of(status)) is not None
    ]


def _marked(*reasons: Attention) -> OperationQuerySet:
    return Operation.objects.filter(_is_marked(*(reasons or OF_WAITING)))


def _is_marked(*reasons: Attention) -> Q:
    any_of = Q()
    for reason in reasons:
        any_of |= Q(concerns__contains=reason)
    return is_("concerns", "> ''") & any_of


def _raise(obstacle: Obstacle, actor: str, *, at_most: int) -> int:
    alike = Operation.objects.due().whole().filter(**obstacle.group)
    new = alike.exclude(_is_marked(obstacle.reason)).order_by().values_list("pk", flat=True)
    # That it waits is part of the condition: a claim that comes first wins.
    due = Operation.objects.due()
    note = obstacle.status.message
    return sum(
        concerns.raise_for(due.filter(pk=pk), obstacle.reason, actor=actor, note=note)
        for pk in list(new[: max(0, at_most)])
    )


def _blocked_subtasks(obstacle: Obstacle) -> QuerySet[Subtask]:
    alike = Operation.objects.due().subtasks().filter(**obstacle.group)
    return Subtask.objects.filter(operation__in=alike, parent__state=State.RUNNING)


def _raise_for_parents(obstacle: Obstacle, actor: str, *, at_most: int) -> int:
    """Raise the concern for the parents of blocked subtasks; the note names the first of each."""
    blocked = _blocked_subtasks(obstacle).select_related("operation").order_by("group", "index")
    new = blocked.exclude(parent__in=_marked(obstacle.reason))
    firsts: dict[str, Subtask] = {}
    for subtask in new[:MAX_CHANGED]:
        firsts.setdefault(subtask.parent_id, subtask)
    return sum(
        concerns.raise_for(
            Operation.objects.filter(pk=parent_id, state=State.RUNNING),
            obstacle.reason,
            actor=actor,
            note=f"Subtask {subtask.pk} ({subtask}) waits: {obstacle.status.message}",
        )
        for parent_id, subtask in list(firsts.items())[: max(0, at_most)]
    )


def _clear_parents(obstacles: Iterable[Obstacle]) -> None:
    """Clear what is no longer true of parents: no subtask of theirs is blocked any more."""
    marked = list(_marked().filter(state=State.RUNNING).order_by().values_list("pk", flat=True))
    if not marked:
        return
    blocked: dict[Attention, set[str]] = defaultdict(set)
    for obstacle in obstacles:
        parents = _blocked_subtasks(obstacle).filter(parent__in=marked)
        blocked[obstacle.reason] |= set(parents.values_list("parent_id", flat=True))
    for pk in marked[:MAX_CHANGED]:
        outdated = [reason for reason in OF_WAITING if pk not in blocked[reason]]
        concerns.clear(Operation.objects.filter(pk=pk), *outdated)


def _clear_outdated(
    groups: Iterable[BlockedGroup], known: Sequence[ServingWorker], known_shares: Shares
) -> None:
    """Clear what is no longer true: a worker has come that fits, or there is another obstacle."""
    for group in groups:
        true = reason_of(queue_status.obstacle(group, known, known_shares))
        outdated = OF_WAITING - {true}
        rows = _marked(*outdated).exclude(state=State.RUNNING).filter(**group)
        for pk in list(rows.order_by().values_list("pk", flat=True)[:MAX_CHANGED]):
            concerns.clear(Operation.objects.filter(pk=pk), *outdated)


def _clear_repaired() -> None:
    """Clear the concern about altered checkpoints where these were deleted."""
    damaged = Checkpoint.objects.filter(
        operation_id=OuterRef("pk"), health=Checkpoint.Health.CORRUPTED
    )
    marked = Operation.objects.filter(_is_marked(Attention.CORRUPTED))
    repaired = marked.exclude(Exists(damaged))
    for pk in list(repaired.values_list("pk", flat=True)[:MAX_CHANGED]):
        concerns.check_damage(pk)


WATCH = StuckWatch()  # of this process
