"""What may be asked of operations, and the one way in which their states change."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from django.db import models, transaction
from django.db.models import OrderBy, Q
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce
from django.db.models.lookups import Exact, LessThan

from apps.installation.counters import COUNTERS
from apps.operations import attention
from apps.operations.indexes import IS_ACTIVE, IS_GANG, IS_WAITING, LISTED
from apps.operations.lifecycle import ACTIVE, FINISHED, State, sources_of
from apps.operations.placement import Offer
from trainops.clock import DatabaseNow

if TYPE_CHECKING:
    from apps.operations.models import Operation


class OperationQuerySet(models.QuerySet["Operation"]):
    def owned(self, operation_id: str, attempt: int) -> Self:
        """The fence: the row, if `attempt` still owns the operation; else nothing."""
        return self.filter(pk=operation_id, attempt=attempt, state=State.RUNNING)

    def waiting(self) -> Self:
        return self.filter(IS_WAITING)

    def due(self) -> Self:
        """Waiting, and not held back by a pause before a restart."""
        return self.waiting().filter(Q(not_before=None) | Q(not_before__lte=DatabaseNow()))

    def gangs(self) -> Self:
        """Those that several workers compute at once."""
        return self.filter(IS_GANG)

    def served_by(self, kinds: Collection[str], labels: Collection[str]) -> Self:
        return self.filter(kind__in=kinds, queue__in=["", *labels])

    def fitting(self, offer: Offer) -> Self:
        """What a worker that offers this may take. Plain comparisons of columns: see the index."""
        fits = Q(pk__in=[])
        for free_slot in offer.free_slots:
            for limit in free_slot.limits:
                fits |= Q(
                    takes_slot=free_slot.is_slot,
                    processes__lte=limit.processes,
                    device__in=limit.devices,
                    gpu_memory_bytes__lte=limit.gpu_memory_bytes,
                )
        fitting = self.served_by(offer.kinds, offer.labels).filter(
            fits,
            memory_bytes__lte=offer.memory_bytes,
            checkpoint_bytes__lte=offer.disk_bytes // 2,  # Need.disk_bytes
        )
        if not offer.is_node:
            fitting = fitting.filter(nodes=1)
        if not offer.has_datasets:
            fitting = fitting.filter(uses_datasets=False)
        if offer.seconds_left is not None:
            fitting = fitting.saved_within(offer.seconds_left)
        return fitting if offer.takes_subtasks else fitting.whole()

    def saved_within(self, seconds: float) -> Self:
        """Those whose first checkpoint is expected within these seconds of a claim."""
        if seconds < 0:
            return self.none()
        is_soon = Q(first_checkpoint_seconds__lte=int(seconds))
        return self.filter(is_soon | Q(first_checkpoint_seconds=None))

    def next_first(self, *use: Combinable) -> Self:
        """In the order in which they are taken.

        use: within a priority, the least of these goes first (see `shares.Shares.order`).
        """
        return self.order_by("-priority", *use, "queued_at", "id")

    def sooner_than(self, priority: int, queued_at: datetime, *use: tuple[Combinable, int]) -> Self:
        """Those that are taken before an operation of this priority and age.

        use: what `next_first` orders by, each with the value of that operation.
        """
        is_sooner = Q(queued_at__lt=queued_at)
        for expression, value in reversed(use):
            is_equal = Q(Exact(expression, value))
            is_sooner = Q(LessThan(expression, value)) | (is_equal & is_sooner)
        return self.filter(Q(priority__gt=priority) | (Q(priority=priority) & is_sooner))

    def whole(self) -> Self:
        """Without subtasks."""
        return self.filter(is_subtask=False)

    def listed(self) -> Self:
        """What lists show by default: neither subtasks nor archived operations."""
        return self.filter(LISTED)

    def window(self, by: Sequence[str | OrderBy], start: int, stop: int) -> Self:
        """The operations at these positions of an order.

        They are found without their other columns: an index that has those of the conditions and
        of the order is all that is read of the others.
        """
        found = self.order_by(*by).values("pk")[start:stop]
        return type(self)(self.model).filter(pk__in=found).order_by(*by)

    def subtasks(self) -> Self:
        """Those that compute a part of another one."""
        return self.filter(subtask__isnull=False)

    def active(self) -> Self:
        return self.filter(IS_ACTIVE)

    def silent(self) -> Self:
        """RUNNING, but the lease has run out: no worker claims it."""
        return self.filter(state=State.RUNNING, lease_expires_at__lt=DatabaseNow())

    def move(self, to: State, *, actor: str, note: str = "", **fields: Any) -> bool:
        """Move the one operation in this queryset to `to`, with its event; False if it may not.

        Losing a race is a normal answer: the first move decided.
        """
        with transaction.atomic():
            rows = self.filter(state__in=sources_of(to))
            row = rows.select_for_update(no_key=True).first()
            if row is None:
                return False
            reason = fields.get("reason", "")
            concerns = attention.after_move(row.concerns, row.state, to, reason)
            moved = type(self)(self.model).filter(pk=row.pk, state=row.state, attempt=row.attempt)
            if not moved.update(state=to, concerns=concerns, **_stamps(to, row, reason), **fields):
                return False
            attempt = row.attempt + 1 if "attempt" in fields else row.attempt
            for new in set(attention.split(concerns)) - set(attention.split(row.concerns)):
                row.record(new, actor=actor, note=new.label, reason=reason, attempt=attempt)
            row.record(
                to, actor=actor, note=note, from_state=row.state, reason=reason, attempt=attempt
            )
            if to in FINISHED:
                COUNTERS.add_on_commit("operations_finished", kind=row.kind, state=str(to))
        return True


def _stamps(to: State, row: "Operation", reason: object) -> dict[str, object]:
    """Return the columns that belong to a state, so that no caller can forget one."""
    # The restarts of a crash loop are what a user has acknowledged; all else begins anew.
    is_loop = row.state in ACTIVE and attention.Attention.CRASH_LOOPING in row.concerns
    unacknowledged = {} if is_loop else attention.UNACKNOWLEDGED
    if to is State.RUNNING:
        return {
            "started_at": Coalesce("started_at", DatabaseNow()),
            "finished_at": None,
            "archived_at": None,
            "reason": "",
            **unacknowledged,
        }
    if to in FINISHED:
        # A failure is new, also where a user has acknowledged the self-check of the attempt.
        is_new = to is State.FAILED or attention.is_spent(reason)
        return {
            "finished_at": DatabaseNow(),
            "lease_expires_at": None,
            "worker_id": "",
            "not_before": None,
            "stop_requested": "",
            **(attention.UNACKNOWLEDGED if is_new else {}),
        }
    return {
        "queued_at": DatabaseNow(),
        "finished_at": None,
        "archived_at": None,
        **unacknowledged,
        "lease_expires_at": None,
        "worker_id": "",
        "stop_requested": "",
        "stop_requested_at": None,
        "stop_requested_by": "",
        "stop_reason": "",
    }
