"""The registry's workers as the placement of operations looks at them."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Count, Sum

from apps.operations.placement import Device, ServingWorker
from apps.workers.models import LOCAL, Worker
from apps.workers.rows import gpus_of, whole_or_none
from trainops.clock import DatabaseNow, seconds_from_now

UNREACHABLE = Worker.Status.TEMPORARILY_UNAVAILABLE


def serving_workers() -> list[ServingWorker]:
    """Return every worker that takes work and is not gone for good, with all it said of itself."""
    known: Any = Worker.objects.taking_work().with_status()
    rows = known.exclude(status=Worker.Status.GONE)
    return [
        ServingWorker(
            worker_id=row.worker_id,
            kinds=tuple(row.kinds),
            labels=tuple(row.labels),
            slots=row.slots,
            num_running=row.num_running,
            max_processes=row.slots if row.worker_type == LOCAL else 1,
            is_node=row.worker_type == LOCAL,
            versions=tuple(_versions(row.capabilities)),
            is_reachable=row.status != UNREACHABLE,
            is_draining=row.is_draining,
            gpus=tuple(Device(gpu["id"], gpu["memory_bytes"]) for gpu in gpus_of(row.capabilities)),
            memory_bytes=whole_or_none(row.capabilities.get("ram_bytes")),
            disk_bytes=row.storage_free_bytes,
            storage_problem=row.storage_problem,
            dataset_problem=row.dataset_problem,
            seconds_left=seconds_left(row),
        )
        for row in rows.order_by("worker_id")
    ]


def size() -> tuple[int, int]:
    """Return the numbers of workers that are not gone, and of operations that these run."""
    limit = seconds_from_now(-settings.THRESHOLDS.worker_gone_seconds)
    known = Worker.objects.filter(heartbeat_at__gte=limit)
    found = known.aggregate(num_workers=Count("pk"), num_running=Sum("num_running"))
    return found["num_workers"], found["num_running"] or 0


def lock(worker_ids: Collection[str] | None) -> None:
    """Lock the rows of these workers, or of all, until the transaction ends."""
    rows = Worker.objects.all() if worker_ids is None else Worker.objects.filter(pk__in=worker_ids)
    if connection.features.has_select_for_update:  # SQLite has one lock for all who write
        list(rows.order_by("worker_id").select_for_update().values_list("pk"))


def seconds_left(row: Worker) -> float | None:
    """Return the seconds for the first checkpoint of a new operation; None: it has no end.

    `row` is annotated by `with_status`.
    """
    left = row.time_left  # type: ignore[attr-defined] # annotated
    if left is None:
        return None
    limits = settings.THRESHOLDS
    reserved = limits.shutdown_timeout_seconds + limits.worker_end_margin_seconds
    return float(left.total_seconds()) - reserved


def is_ending(worker_id: str) -> bool:
    """Whether it is time for a worker over HTTP to save what it runs."""
    limit = seconds_from_now(settings.THRESHOLDS.shutdown_timeout_seconds)
    return Worker.objects.filter(pk=worker_id, ends_at__lte=limit).exists()


def end_now(*, worker_id: str) -> None:
    """Write down that a worker is stopping: it has no time for anything new.

    Not `is_draining`, which a worker that is killed meanwhile would find when it starts again.
    """
    Worker.objects.filter(pk=worker_id).update(ends_at=DatabaseNow())


def report_storage(
    *, worker_id: str, free_bytes: int, storage_problem: str, dataset_problem: str
) -> None:
    """Write down what a worker sees of the storages of checkpoints and datasets."""
    Worker.objects.filter(pk=worker_id).update(
        storage_free_bytes=free_bytes,
        storage_problem=storage_problem,
        dataset_problem=dataset_problem,
    )


def _versions(capabilities: Mapping[str, object]) -> Iterator[str]:
    """Yield what must be equal on all nodes of an operation; see `node_protocol.versions`."""
    for name in ("trainops", "torch"):
        if version := capabilities.get(name):
            yield f"{name} {version}"
