"""The figures of /metrics, read from the database when they are asked for.

So that they are those of the installation, whatever process answers; the number of queries does not
grow with the number of operations, workers or processes.
"""

import json
from collections import Counter as Count_
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Count, Max, Min, Q
from django.utils import timezone
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from apps.installation.counters import labels_of
from apps.installation.models import Counter
from apps.notifications.models import Delivery
from apps.operations.lifecycle import FINISHED, Reason, State
from apps.operations.models import Attempt, Event, Operation, Subscription
from apps.operations.placement import ServingWorker
from apps.operations.scheduling import queue_status, shares, stuck
from apps.operations.scheduling.blocking import BlockingReason
from apps.workers.models import Worker
from trainops.clock import DatabaseNow
from trainops.kind import KINDS
from trainops.version import VERSION

Sample = tuple[Sequence[str], float]  # values of the labels, value
PREFIX = "trainops_"


@dataclass(frozen=True, slots=True)
class Gauge:
    """A metric that is read from the current rows."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


GAUGES = (
    Gauge("info", "Version of the web process; always 1.", ("version",)),
    Gauge("queue_operations", "Waiting operations by kind and required label.", ("kind", "label")),
    Gauge("queue_oldest_seconds", "Waiting time of the first of them.", ("kind", "label")),
    Gauge("waiting_operations", "Waiting operations by blocking reason.", ("cause",)),
    Gauge("running_operations", "Running operations by kind.", ("kind",)),
    Gauge("lease_age_seconds_max", "Seconds since the oldest renewal of a lease."),
    Gauge("leases_expired", "Running operations whose lease has expired."),
    Gauge("workers", "Registered workers by status.", ("status",)),
    Gauge("worker_slots", "Slots of reachable workers by use.", ("use",)),
    Gauge("worker_gpus", "GPUs of reachable workers by use.", ("use",)),
    Gauge("storage_free_bytes_min", "Least free bytes for checkpoints that a worker reported."),
    Gauge("storage_problems", "Workers that cannot read or write checkpoints."),
    Gauge("dataset_storage_problems", "Workers that cannot read datasets."),
    Gauge("attention_operations", "Operations that need attention: blocked, damaged, not saved."),
    Gauge("outbox_lag_events", "Events not yet delivered to a subscriber.", ("subscriber",)),
    Gauge("outbox_lag_seconds", "Age of the oldest of them.", ("subscriber",)),
    Gauge("outbox_retries", "Events that a subscriber could not handle yet.", ("subscriber",)),
    Gauge("notifications_undelivered", "Notifications not delivered, by status.", ("status",)),
)
COUNTERS = (
    Gauge("attempts_ended", "Ended attempts.", ("kind", "outcome", "reason")),
    Gauge("operations_finished", "Operations that reached a final state.", ("kind", "state")),
    Gauge("checkpoints_committed", "Committed checkpoints.", ("kind", "type")),
    Gauge("checkpoint_bytes", "Bytes of files that were new with a checkpoint.", ("kind",)),
    Gauge("checkpoint_write_seconds", "Time that writing checkpoints took.", ("kind",)),
    Gauge("checkpoint_saves_failed", "Checkpoints that could not be written.", ("kind",)),
    Gauge("checkpoint_uploads_failed", "Checkpoints that no bucket took.", ("kind",)),
)
TYPES = {each.name: "gauge" for each in GAUGES} | {
    f"{each.name}_total": "counter" for each in COUNTERS
}


def collect() -> Iterator[Metric]:
    """Yield every metric; what has no value now is there without samples."""
    found: dict[str, list[Sample]] = defaultdict(list)
    for source in SOURCES:
        for name, values, value in source():
            found[name].append((values, value))
    for each in GAUGES:
        gauge = GaugeMetricFamily(PREFIX + each.name, each.help, labels=each.labels)
        for values, value in found[each.name]:
            gauge.add_metric(values, value)
        yield gauge
    counted = _counted()
    for each in COUNTERS:
        counter = CounterMetricFamily(PREFIX + each.name, each.help, labels=each.labels)
        for labels, value in counted[each.name]:
            counter.add_metric([labels.get(name, "") for name in each.labels], value)
        yield counter


Row = tuple[str, Sequence[str], float]


def _info() -> Iterator[Row]:
    yield "info", [VERSION], 1.0


def _queue() -> Iterator[Row]:
    now = timezone.now()
    rows: Any = Operation.objects.waiting().order_by().values("kind", "queue")
    paused, absent = 0, {(kind, "") for kind in KINDS}
    for row in rows.annotate(
        num=Count("pk"), oldest=Min("queued_at"), paused=Count("pk", Q(not_before__gt=now))
    ):
        labels = [row["kind"], row["queue"]]
        yield "queue_operations", labels, row["num"]
        yield "queue_oldest_seconds", labels, _seconds(row["oldest"], now)
        paused += row["paused"]
        absent.discard((row["kind"], row["queue"]))
    for kind, label in sorted(absent):  # a sum with something that is absent is absent, too
        yield "queue_operations", [kind, label], 0
    yield "waiting_operations", [BlockingReason.PAUSED], paused


def _workers_and_causes() -> Iterator[Row]:
    """Count the reasons of groups that ask for the same, as the sweep judges them."""
    known, known_shares = queue_status.workers(), shares.current(has_order=False)
    rows: Any = Operation.objects.due().order_by().values(*stuck.group_fields(known_shares))
    causes = Count_[str](dict.fromkeys(BlockingReason, 0))
    del causes[BlockingReason.PAUSED]
    for row in rows.annotate(num=Count("pk"))[: stuck.MAX_GROUPS]:
        causes[queue_status.obstacle(row, known, known_shares).code] += row["num"]
    for cause, num in causes.items():
        yield "waiting_operations", [cause], num
    yield from _capacity([each for each in known if each.is_reachable])


def _capacity(workers: Iterable[ServingWorker]) -> Iterator[Row]:
    slots, gpus = Count_[str](used=0, free=0), Count_[str](used=0, free=0)
    free_bytes = []
    problems = dataset_problems = 0
    for each in workers:
        slots["used"] += each.num_running
        slots["free"] += max(0, each.slots - each.num_running)
        held = sum(gpu.id in each.held for gpu in each.gpus)
        gpus["used"] += held
        gpus["free"] += len(each.gpus) - held
        problems += bool(each.storage_problem)
        dataset_problems += bool(each.dataset_problem)
        free_bytes += [each.disk_bytes] if each.disk_bytes is not None else []
    for use in ("used", "free"):
        yield "worker_slots", [use], slots[use]
        yield "worker_gpus", [use], gpus[use]
    yield "storage_problems", [], problems
    yield "dataset_storage_problems", [], dataset_problems
    if free_bytes:
        yield "storage_free_bytes_min", [], min(free_bytes)


def _statuses() -> Iterator[Row]:
    rows: Any = Worker.objects.taking_work().with_status()
    counts = Count_(rows.order_by().values_list("status", flat=True))
    for status in Worker.Status.values:
        yield "workers", [status], counts[status]


def _running() -> Iterator[Row]:
    now = timezone.now()
    running: Any = Operation.objects.filter(state=State.RUNNING).order_by().values("kind")
    expired, first, absent = 0, None, {*KINDS}
    for row in running.annotate(
        num=Count("pk"),
        first=Min("lease_expires_at"),
        expired=Count("pk", Q(lease_expires_at__lt=DatabaseNow())),
    ):
        yield "running_operations", [row["kind"]], row["num"]
        expired += row["expired"]
        first = min(filter(None, (first, row["first"])))
        absent.discard(row["kind"])
    for kind in sorted(absent):
        yield "running_operations", [kind], 0
    yield "leases_expired", [], expired
    length = settings.THRESHOLDS.orphan_timeout_seconds
    yield "lease_age_seconds_max", [], length + _seconds(first, now) if first else 0.0


def _attention() -> Iterator[Row]:
    yield "attention_operations", [], Operation.objects.filter(concerns__gt="").count()


def outbox() -> Iterator[Row]:
    newest = Event.objects.aggregate(newest=Max("pk"))["newest"] or 0
    now = timezone.now()
    rows = list(Subscription.objects.values("name", "cursor", "retries"))
    lowest = min((row["cursor"] for row in rows), default=newest)
    behind = Event.objects.filter(pk__gt=lowest).order_by("pk").values_list("at", flat=True)
    oldest = behind.first() if lowest < newest else None
    for row in rows:
        lag = max(0, newest - row["cursor"])
        yield "outbox_lag_events", [row["name"]], lag
        yield "outbox_lag_seconds", [row["name"]], _seconds(oldest, now) if lag and oldest else 0.0
        yield "outbox_retries", [row["name"]], len(row["retries"])


def _notifications() -> Iterator[Row]:
    rows: Any = Delivery.objects.filter(status__in=Delivery.UNDELIVERED).order_by()
    counts = dict(rows.values_list("status").annotate(num=Count("pk")))
    for status in Delivery.UNDELIVERED:
        yield "notifications_undelivered", [status], counts.get(status, 0)


def _counted() -> Mapping[str, list[tuple[dict[str, str], float]]]:
    """Return the counters, and those at 0 whose first count an alert must not miss.

    Prometheus sees no increase where a counter begins with 1.
    """
    rows = Counter.objects.order_by("name", "labels").values_list("name", "labels", "value")
    values = dict.fromkeys(_from_the_beginning(), 0.0)
    values |= {(name, labels): value for name, labels, value in rows}
    found: dict[str, list[tuple[dict[str, str], float]]] = defaultdict(list)
    for (name, labels), value in values.items():
        found[name].append((json.loads(labels), value))
    return found


def _from_the_beginning() -> Iterator[tuple[str, str]]:
    for kind in KINDS:
        for name in ("checkpoint_saves_failed", "checkpoint_uploads_failed"):
            yield name, labels_of(kind=kind)
        stalled = {"outcome": Attempt.Outcome.FAILED, "reason": Reason.STALLED}
        yield "attempts_ended", labels_of(kind=kind, **stalled)
        for state in sorted(FINISHED):
            yield "operations_finished", labels_of(kind=kind, state=state)


def _seconds(since: datetime | None, now: datetime) -> float:
    return (now - since).total_seconds() if since else 0.0


SOURCES: tuple[Callable[[], Iterator[Row]], ...] = (
    _info, _queue, _workers_and_causes, _statuses, _running, _attention, outbox, _notifications,
)  # fmt: skip
