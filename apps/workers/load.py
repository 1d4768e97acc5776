"""How busy the machine of a worker is: a sample each minute, kept for a day."""

from dataclasses import asdict, dataclass
from datetime import timedelta

from django.db import IntegrityError, transaction

from apps.workers.models import LoadSample
from apps.workers.rows import GpuLoad
from trainops.clock import DatabaseNow

SAMPLE_SECONDS = 60.0
MIN_INTERVAL = timedelta(seconds=SAMPLE_SECONDS / 2)  # a sample that follows sooner is ignored
KEPT = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class MachineLoad:
    """What all processes of a machine use."""

    cpu_percent: float  # of all cores, since the sample before
    memory_bytes: int
    gpus: list[GpuLoad]


def record(worker_id: str, load: MachineLoad) -> None:
    """Add a sample of a worker. One that follows another too soon is ignored."""
    recent = LoadSample.objects.filter(worker_id=worker_id, at__gt=DatabaseNow() - MIN_INTERVAL)
    if recent.exists():
        return
    try:
        with transaction.atomic():
            LoadSample.objects.create(worker_id=worker_id, **asdict(load))
    except IntegrityError:
        return  # the worker has been deregistered since


def samples(worker_id: str) -> list[LoadSample]:
    """Return those of the last day, the oldest first."""
    rows = LoadSample.objects.filter(worker_id=worker_id, at__gt=DatabaseNow() - KEPT)
    return list(rows.order_by("at"))


def latest() -> dict[str, LoadSample]:
    """Return the newest sample of each worker that has one of the last three minutes."""
    since = DatabaseNow() - timedelta(seconds=3 * SAMPLE_SECONDS)
    rows = LoadSample.objects.filter(at__gt=since).order_by("at")
    return {each.worker_id: each for each in rows}


def forget_old() -> int:
    """Delete samples that are older than a day; return their number."""
    return LoadSample.objects.filter(at__lte=DatabaseNow() - KEPT).delete()[0]
