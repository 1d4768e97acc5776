"""What mends the world: functions on the database alone. Any number of them at once is harmless."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.db.models import ExpressionWrapper, F, Q, fields

from apps.operations.lifecycle import Reason
from apps.operations.models import Attempt, Operation
from apps.operations.scheduling import claims
from apps.operations.scheduling.dispatch import dispatch
from apps.operations.scheduling.portions import for_each
from trainops.clock import DatabaseNow
from trainops.process.protocol import now

LOST = "Operation was RUNNING but no worker claimed it"
HINT_SECONDS = (5, 15, 60, 300)  # growing, so that a long queue does not flood the broker
MAX_HINTS = 50


class DatabaseContact:
    """Whether this process has seen the database without a gap for as long as a lease lasts.

    After an outage every lease in the database is old though every attempt is healthy: a
    sweep then would end all of them at once.
    """

    def __init__(self, *, clock: Callable[[], float] = now) -> None:
        self.clock = clock
        self._since, self._seen_at = float("inf"), float("-inf")

    def saw_the_database(self) -> None:
        moment = self.clock()
        if self._is_gap(moment):
            self._since = moment
        self._seen_at = moment

    def may_judge(self) -> bool:
        moment = self.clock()
        has_seen_a_lease = moment - self._since >= settings.THRESHOLDS.orphan_timeout_seconds
        return has_seen_a_lease and not self._is_gap(moment)

    def _is_gap(self, moment: float) -> bool:
        return moment - self._seen_at > 2.5 * settings.THRESHOLDS.health_check_interval_seconds


DATABASE_CONTACT = DatabaseContact()  # of this worker process; its heartbeat tells it


@dataclass(frozen=True, slots=True)
class Swept:
    num_lost: int
    num_hinted: int


def sweep(*, actor: str, num_hints: int = MAX_HINTS) -> Swept:
    """Find orphaned operations and waiting ones whose message was lost."""
    num_lost = recover_lost(actor=actor) if DATABASE_CONTACT.may_judge() else 0
    return Swept(num_lost, send_hints(at_most=num_hints))


def recover_lost(*, actor: str) -> int:
    """Give operations whose lease has run out to their restart policy."""
    silent = Operation.objects.silent().iterator()
    return sum(for_each(silent, lambda operation: _recover(operation, actor), "orphan"))


def _recover(operation: Operation, actor: str) -> bool:
    # The lease is part of the condition: a renewal that comes first wins.
    silent = Operation.objects.silent().filter(pk=operation.pk, attempt=operation.attempt)
    return claims.restart_or_fail(
        operation,
        Reason.WORKER_LOST,
        owned=silent,
        actor=actor,
        note=LOST,
        outcome=Attempt.Outcome.LOST,
    )


def send_hints(*, at_most: int = MAX_HINTS) -> int:
    """Send the messages again that may have been lost, at growing intervals.

    Only about what workers like this one take: messages about the rest might never be read.
    """
    age = ExpressionWrapper(DatabaseNow() - F("hinted_at"), output_field=fields.DurationField())
    due = Q(hinted_at=None, queued_at__lt=DatabaseNow() - timedelta(seconds=HINT_SECONDS[0]))
    for num_hints, seconds in enumerate(HINT_SECONDS):
        is_last = num_hints == len(HINT_SECONDS) - 1
        sent = Q(num_hints__gte=num_hints) if is_last else Q(num_hints=num_hints)
        due |= sent & Q(age__gt=timedelta(seconds=seconds))
    serving = settings.SERVING
    served = Operation.objects.due().served_by(serving.kinds, serving.labels)
    waiting = served.annotate(age=age).filter(due).next_first()
    hinted = list(waiting.values_list("pk", "kind", "queue")[:at_most])
    Operation.objects.filter(pk__in=[each[0] for each in hinted]).update(
        hinted_at=DatabaseNow(), num_hints=F("num_hints") + 1
    )
    for each in hinted:
        dispatch(*each)
    return len(hinted)
