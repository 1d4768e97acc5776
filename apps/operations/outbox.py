"""The outbox: subscribers follow the event table, each with a cursor of its own.

Delivery is at least once, and in order for the events of one operation. An event that a subscriber
cannot handle is retried with longer and longer pauses, and given up after MAX_FAILURES; meanwhile
the events of other operations are delivered. Subscribers do not affect each other: where one takes
long, other processes deliver to the rest.

Ids are assigned before a transaction commits, so an event may become visible after events with
higher ids. Ids that are missing below the cursor are remembered, and delivered when they appear.
After GAP_SECONDS, which is longer than a transaction can last, they were rolled back.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Max, Q, QuerySet
from django.utils import timezone

from apps.operations.models.records import Event, Subscription
from trainops import backoff

BATCH, GAP_SECONDS = 200, 300.0
MAX_FAILURES, FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 12, 2.0, 600.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A function that is called with each event. It must be short, and may be called twice.

    whats: the events that it handles (`Event.what`); empty: all.
    """

    name: str
    handle: Callable[[Event], None]
    whats: frozenset[str] = frozenset()


_subscribers: dict[str, Subscriber] = {}


def subscribe(subscriber: Subscriber) -> None:
    """Register a subscriber. Called from AppConfig.ready; idempotent."""
    _subscribers[subscriber.name] = subscriber


def create_cursors() -> None:
    """Create the cursors of new subscribers, a day back. Called after a migration."""
    old = Event.objects.filter(at__lt=timezone.now() - timedelta(days=1))
    cursor = old.aggregate(newest=Max("pk"))["newest"] or 0
    for name in _subscribers:
        Subscription.objects.get_or_create(pk=name, defaults={"cursor": cursor})


def deliver() -> None:
    """Deliver new events to every subscriber.

    Any number of processes may call it at once. What a subscriber raises is logged.
    """
    for subscriber in list(_subscribers.values()):
        while _deliver_batch(subscriber):
            pass


def _deliver_batch(subscriber: Subscriber) -> bool:
    """Deliver some events; whether there may be more for this process to deliver."""
    row, _ = Subscription.objects.get_or_create(pk=subscriber.name)
    if not _visible(row).exists():
        return False
    with transaction.atomic():
        free = Subscription.objects.select_for_update(skip_locked=True)
        locked = free.filter(pk=subscriber.name).first()
        if locked is None:
            return False  # another process delivers, and looks again afterwards
        row = locked
        for event in _visible(row)[:BATCH]:
            if not subscriber.whats or event.what in subscriber.whats:
                _deliver(subscriber, event, row)
            _advance(row, event)
        row.save()
    return True


def _visible(row: Subscription) -> QuerySet[Event]:
    """Return the events that are to be delivered now, in order."""
    now = timezone.now().isoformat()
    due = [key for key, retry in row.retries.items() if retry["not_before"] <= now]
    return Event.objects.filter(Q(pk__gt=row.cursor) | Q(pk__in=[*row.gaps, *due])).order_by("pk")


def _deliver(subscriber: Subscriber, event: Event, row: Subscription) -> None:
    """Call the subscriber, or note that the event is to be retried."""
    retry = row.retries.pop(str(event.pk), None)
    for key, earlier in row.retries.items():
        if earlier["operation"] == event.operation_id and int(key) < event.pk:  # in order
            row.retries[str(event.pk)] = {**earlier, "num_failures": 0}
            return
    try:
        with transaction.atomic():
            subscriber.handle(event)
    except Exception as error:
        num_failures = 1 + (retry["num_failures"] if retry else 0)
        if num_failures >= MAX_FAILURES:
            logger.exception("%s: event %s is given up", subscriber.name, event.pk)
            return
        logger.warning("%s: event %s is retried: %s", subscriber.name, event.pk, error)
        pause = backoff.seconds(num_failures, first=FIRST_PAUSE_SECONDS, longest=LAST_PAUSE_SECONDS)
        row.retries[str(event.pk)] = {
            "operation": event.operation_id,
            "num_failures": num_failures,
            "not_before": (timezone.now() + timedelta(seconds=pause)).isoformat(),
        }


def _advance(row: Subscription, event: Event) -> None:
    """Move the cursor past an event, and remember the ids between that may appear later."""
    now = timezone.now()
    oldest = now - timedelta(seconds=GAP_SECONDS)
    row.gaps = {
        key: missed for key, missed in row.gaps.items() if datetime.fromisoformat(missed) > oldest
    }
    row.gaps.pop(str(event.pk), None)
    if event.pk > row.cursor:
        if event.at > oldest:
            missing = range(row.cursor + 1, event.pk)
            row.gaps |= {str(each): now.isoformat() for each in missing}
        row.cursor = event.pk
