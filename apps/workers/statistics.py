"""Numbers about the whole installation, by five queries, however many rows there are."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

from django.db.models import Count, DurationField, ExpressionWrapper, F, Sum
from django.db.models.functions import Coalesce, Greatest

from apps.checkpoints.models import Checkpoint
from apps.datasets.models import Dataset
from apps.operations.lifecycle import State
from apps.operations.models import Operation
from apps.operations.models.compute_time import END, FACTORS, HOUR_SECONDS, computing_since
from apps.workers.models import Worker
from trainops.clock import seconds_from_now
from trainops.kind import KINDS

DAYS = 7
DAY_SECONDS = 86_400


@dataclass(slots=True)
class KindStatistics:
    """What operations of one kind amount to. Hours are of the last `DAYS` days."""

    kind: str
    states: dict[str, int] = field(default_factory=lambda: dict.fromkeys(State.values, 0))
    num_checkpoints: int = 0
    checkpoint_bytes: int = 0
    compute_hours: float = 0.0
    gpu_hours: float = 0.0


def all_statistics() -> dict[str, object]:
    """Return the statistics as the API shows them (`StatisticsSerializer`)."""
    kinds = defaultdict(lambda: KindStatistics(""), {name: KindStatistics(name) for name in KINDS})
    _count_operations(kinds)
    _count_checkpoints(kinds)
    _add_hours(kinds)
    for name, each in kinds.items():
        each.kind = name  # a kind that is not registered any more
    return {
        "days": DAYS,
        "kinds": [asdict(each) for each in kinds.values()],
        "workers": _workers(),
        "datasets": Dataset.objects.aggregate(
            num_datasets=Count("pk"), size_bytes=Coalesce(Sum("size_bytes"), 0)
        ),
    }


def _count_operations(kinds: Mapping[str, KindStatistics]) -> None:
    """Count whole operations; those of subtasks are part of their parents."""
    rows: Any = Operation.objects.whole().order_by().values("kind", "state")
    for row in rows.annotate(number=Count("pk")):
        kinds[row["kind"]].states[row["state"]] = row["number"]


def _count_checkpoints(kinds: Mapping[str, KindStatistics]) -> None:
    rows: Any = Checkpoint.objects.order_by().values(kind=F("operation__kind"))
    for row in rows.annotate(number=Count("pk"), size=Sum("counted_size_bytes")):
        kinds[row["kind"]].num_checkpoints = row["number"]
        kinds[row["kind"]].checkpoint_bytes = row["size"]


def _add_hours(kinds: Mapping[str, KindStatistics]) -> None:
    """Add the time of attempts within the window: per process, and per GPU."""
    since = seconds_from_now(-DAYS * DAY_SECONDS)
    took = ExpressionWrapper(END - Greatest("started_at", since), output_field=DurationField())
    groups: Any = computing_since(since).values(kind=F("operation__kind"), **FACTORS)
    for row in groups.annotate(total=Sum(took)):
        hours = max(row["total"], timedelta()).total_seconds() / HOUR_SECONDS
        kinds[row["kind"]].compute_hours += hours * row["processes"]
        kinds[row["kind"]].gpu_hours += hours * row["num_gpus"]


def _workers() -> dict[str, object]:
    """Return the slots of workers that are not gone, and the number of workers by status."""
    rows: Any = Worker.objects.taking_work().with_status()
    found = list(rows.order_by().values_list("status", "slots", "num_running"))
    present = [row for row in found if row[0] != Worker.Status.GONE]
    counts = Counter(status for status, _, _ in found)
    return {
        "num_slots": sum(slots for _, slots, _ in present),
        "num_running": sum(running for _, _, running in present),
        "statuses": {each: counts[each] for each in Worker.Status.values},
    }
