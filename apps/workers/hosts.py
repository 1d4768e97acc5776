"""Hosts that break what runs on them: their workers are drained, as long as others can do the work.

Determined from the database alone, so any process may look, and any number of them at once.
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Count, QuerySet

from apps.operations.lifecycle import Reason
from apps.operations.models import Attempt, Event
from apps.operations.scheduling.restarts import CRASH
from apps.workers import fleet
from apps.workers.models import Worker
from trainops.clock import DatabaseNow
from trainops.kind import KINDS

logger = logging.getLogger(__name__)
FAULTS = CRASH - {Reason.PROCESS_EXITED} | {Reason.PLATFORM_ERROR, Reason.STORAGE_ERROR}
MAX_SHOWN = 5
TAKES_WORK = frozenset({Worker.Status.AVAILABLE, Worker.Status.BUSY})


@dataclass(frozen=True, slots=True)
class Fault:
    """An attempt that ended badly, and not by its operation's own fault as far as one can tell."""

    host: str
    operation_id: str
    attempt: int
    reason: str


def drain_faulty(*, actor: str) -> list[str]:
    """Drain the workers of hosts on which different operations crashed; returns these hosts.

    A host is spared where more operations completed on it than crashed, and where no other host,
    itself above suspicion, can do all that it does.
    """
    suspects = _suspects()
    if not suspects:
        return []
    with transaction.atomic():
        # Two looks at once must not drain two hosts, each for the other's sake.
        fleet.lock(None)
        workers = list(Worker.objects.taking_work().with_status().order_by("worker_id"))
        drained = [host for host in suspects if _can_be_spared(host, workers, suspects)]
        for host in drained:
            _drain(host, suspects[host], actor)
    return drained


def _suspects() -> dict[str, list[Fault]]:
    """Return the hosts that look broken, with what speaks against them."""
    faults: dict[str, list[Fault]] = defaultdict(list)
    for fault in _faults():
        faults[fault.host].append(fault)
    num_needed = settings.THRESHOLDS.host_fault_operations
    num_completed = _num_completed(faults)
    return {
        host: each
        for host, each in faults.items()
        if (num := len({fault.operation_id for fault in each})) >= num_needed
        and num > num_completed.get(host, 0)
    }


def _faults() -> Iterable[Fault]:
    """Yield what went wrong lately under workers that are still there and trusted.

    An operation that crashed on several hosts says nothing of any of them, be it at once.
    """
    trusted = dict(Worker.objects.values_list("worker_id", "trusted_since"))
    rows = list(
        _lately()
        .filter(reason__in=FAULTS, num_nodes=1)
        .exclude(host="")
        .values("host", "worker_id", "operation_id", "number", "reason", "ended_at")
    )
    hosts = defaultdict(set)
    for row in rows:
        hosts[row["operation_id"]].add(row["host"])
    for row in rows:
        since, ended_at = trusted.get(row["worker_id"]), row["ended_at"]
        is_held_against = since is not None and ended_at is not None and ended_at > since
        if is_held_against and len(hosts[row["operation_id"]]) == 1:
            yield Fault(row["host"], row["operation_id"], row["number"], row["reason"])


def _num_completed(hosts: Collection[str]) -> dict[str, int]:
    completed = _lately().filter(host__in=hosts, outcome=Attempt.Outcome.COMPLETED)
    counted = completed.order_by().values("host").annotate(num=Count("operation_id", distinct=True))
    return dict(counted.values_list("host", "num"))


def _lately() -> QuerySet[Attempt]:
    window = timedelta(seconds=settings.THRESHOLDS.host_fault_window_seconds)
    return Attempt.objects.filter(ended_at__gt=DatabaseNow() - window)


def _can_be_spared(host: str, workers: Iterable[Worker], suspects: Collection[str]) -> bool:
    mine, others = set[str](), set[str]()
    for worker in workers:
        if worker.status not in TAKES_WORK:  # type: ignore[attr-defined] # annotated
            continue
        if worker.host == host:
            mine |= _abilities(worker)
        elif worker.host not in suspects:
            others |= _abilities(worker)
    return bool(mine) and mine <= others


def _abilities(worker: Worker) -> set[str]:
    """Return what work may ask for. One that names no kind takes every kind."""
    return {*(worker.kinds or KINDS), *(["a GPU"] if worker.capabilities.get("gpu") else [])}


def _drain(host: str, faults: list[Fault], actor: str) -> None:
    latest = {fault.operation_id: fault for fault in faults}
    shown = [f"{each.operation_id}: {each.reason}" for each in latest.values()][:MAX_SHOWN]
    window = settings.THRESHOLDS.host_fault_window_seconds
    why = (
        f"{len(latest)} operations crashed on {host} within {window:g} s ({', '.join(shown)}); "
        "it accepts no work until an admin allows it"
    )
    Worker.objects.filter(host=host, is_draining=False).update(is_draining=True, drain_reason=why)
    Event.objects.bulk_create(
        Event(
            operation_id=each.operation_id,
            attempt=each.attempt,
            what="HOST_DRAINED",
            actor=actor,
            note=why,
        )
        for each in latest.values()
    )
    logger.error("draining: %s", why)
