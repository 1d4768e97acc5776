"""Sinks: an event makes an operation due, and its files are written anew from the database.

The files hold the points that stand at that moment. There is no position within a file: a crash of
the writer leaves the earlier files, or the new ones, and the write is repeated.
"""

import logging
import time
from collections.abc import Iterator, Sequence

from django.conf import settings
from django.db.models import F

from apps.operations.id_order import oldest_first
from apps.operations.lifecycle import State
from apps.operations.models import Attempt, Event, MetricPoint, Operation
from apps.sinks.models import SinkWrite
from trainops import backoff
from trainops.clock import DatabaseNow, seconds_from_now
from trainops.sinks import known
from trainops.sinks.details import Details, SinkPoint, SinkPointsChanged

WHATS = frozenset({State.RUNNING, State.FAILED, State.CANCELLED, State.COMPLETED})
CHECK_SECONDS = 5.0  # between two queries for what is due
CLAIM_SECONDS = 600.0  # after which another process may write it
RUNNING_SECONDS = 30.0  # between two writes of a running operation, at least
PAUSE_FACTOR = 20.0  # the pause is at least this many times the duration of the last write
FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 10.0, 600.0  # after a failed write
PAGE = 10_000  # points

logger = logging.getLogger(__name__)


def operation_moved(event: Event) -> None:
    """Subscriber: the operation is due in every sink. Subtasks have no curves of their own."""
    if not Operation.objects.filter(pk=event.operation_id, subtask=None).exists():
        return
    for sink in settings.SINKS:
        row, _ = SinkWrite.objects.get_or_create(operation_id=event.operation_id, sink=sink)
        SinkWrite.objects.filter(pk=row.pk).update(
            next_at=DatabaseNow(), num_changes=F("num_changes") + 1, num_failures=0
        )


def write_due() -> None:
    """Write what is due, one after the other; a failure is logged and retried later."""
    due = SinkWrite.objects.filter(sink__in=settings.SINKS, next_at__lte=DatabaseNow())
    for row in due.order_by("next_at", "pk")[:PAGE]:
        if _claimed(row):
            _write(row)


def _claimed(row: SinkWrite) -> bool:
    """Whether this process may write it now."""
    due = SinkWrite.objects.filter(
        pk=row.pk, num_changes=row.num_changes, next_at__lte=DatabaseNow()
    )
    return bool(due.update(next_at=seconds_from_now(CLAIM_SECONDS)))


def _write(row: SinkWrite) -> None:
    began = time.monotonic()
    try:
        operation = Operation.objects.select_related("owner").get(pk=row.operation_id)
        directory = settings.SINKS_DIR / row.sink
        known.write(row.sink, directory, details(operation), pages(operation.pk))
    except Operation.DoesNotExist:
        return  # deleted, and this row with it
    except (OSError, SinkPointsChanged) as error:
        logger.warning("%s was not written and is retried: %s", row, error)
        _retry(row, str(error))
    else:
        seconds = max(RUNNING_SECONDS, PAUSE_FACTOR * (time.monotonic() - began))
        _written(row, None if operation.is_finished else seconds)


def _written(row: SinkWrite, pause: float | None) -> None:
    """Make it due after the pause, or never, unless an event made it due meanwhile."""
    unchanged = SinkWrite.objects.filter(pk=row.pk, num_changes=row.num_changes)
    next_at = None if pause is None else seconds_from_now(pause)
    unchanged.update(next_at=next_at, num_failures=0, error="")


def _retry(row: SinkWrite, error: str) -> None:
    num_failures = row.num_failures + 1
    pause = backoff.seconds(
        num_failures, first=FIRST_PAUSE_SECONDS, longest=LAST_PAUSE_SECONDS, jitter=0.2
    )
    unchanged = SinkWrite.objects.filter(pk=row.pk, num_changes=row.num_changes)
    unchanged.update(next_at=seconds_from_now(pause), num_failures=num_failures, error=error[:300])


def details(operation: Operation) -> Details:
    """Return what sinks write of an operation besides its points."""
    return Details(
        id=operation.pk,
        name=operation.name,
        kind=operation.kind,
        owner=operation.owner.get_username() if operation.owner else "",
        state=operation.state,
        config=operation.config,
        started_at=operation.started_at or operation.created_at,
        finished_at=operation.finished_at if operation.is_finished else None,
    )


def pages(operation_id: str) -> Iterator[Sequence[SinkPoint]]:
    """Yield the points that stand, in the order in which they were measured.

    Raises PointsChanged after the last page if a resume began meanwhile.
    """
    begun = _newest_attempt(operation_id)
    standing = MetricPoint.objects.filter(retired_by=None)
    columns = standing.values_list("id", "name", "step", "value", "not_finite", "at")
    last_id = 0
    while rows := list(oldest_first(columns, last_id, operation_id=operation_id)[:PAGE]):
        last_id = rows[-1][0]
        yield [
            SinkPoint(name, step, float(not_finite) if value is None else value, at)
            for _, name, step, value, not_finite, at in rows
        ]
    if _newest_attempt(operation_id) != begun:
        raise SinkPointsChanged(operation_id)


def _newest_attempt(operation_id: str) -> tuple[int, int | None] | None:
    """Return its number and where it started; its start retires points of earlier ones."""
    attempts = Attempt.objects.filter(operation_id=operation_id)
    return attempts.values_list("number", "from_step").first()
