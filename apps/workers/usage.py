"""The hours that attempts computed in each week, by project, owner or kind; by three queries."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

from django.db.models import Count, DurationField, ExpressionWrapper, F, Sum
from django.db.models.functions import TruncWeek
from django.utils import timezone

from apps.operations.models import PastUse
from apps.operations.models.compute_time import (
    END,
    FACTORS,
    HOUR_SECONDS,
    computing_since,
    monday_of,
)

By = Literal["project", "owner", "kind"]
NAMES: dict[By, str] = {
    "project": "operation__project",
    "owner": "operation__owner__username",
    "kind": "operation__kind",
}
PAST_NAMES: dict[By, str] = {"project": "project", "owner": "owner__username", "kind": "kind"}
WEEK = timedelta(weeks=1)


@dataclass(slots=True)
class Usage:
    """What the operations of one project, owner or kind computed in one week."""

    week: date  # its Monday, in UTC
    name: str  # "": operations without a project or owner
    num_attempts: int = 0
    compute_hours: float = 0.0
    gpu_hours: float = 0.0

    def add(self, time: timedelta, processes: int, num_gpus: int, num_attempts: int = 1) -> None:
        """Add the time of attempts with these numbers of processes and GPUs."""
        hours = max(time, timedelta()).total_seconds() / HOUR_SECONDS
        self.num_attempts += num_attempts
        self.compute_hours += hours * processes
        self.gpu_hours += hours * num_gpus


def weekly_usage(by: By, num_weeks: int) -> list[Usage]:
    """Return the usage in this week and those before it, without weeks in which nothing ran.

    The newest week comes first, and in it who used most. A running attempt counts until now, and
    attempts of deleted operations count with the owner and project that these had.
    """
    first_week = monday_of(timezone.now()) - (num_weeks - 1) * WEEK
    attempts = computing_since(first_week).annotate(
        end=END, begins=TruncWeek("started_at", tzinfo=UTC), ends=TruncWeek(END, tzinfo=UTC)
    )
    found: dict[tuple[date, str], Usage] = {}

    def usage(week: datetime, name: str | None) -> Usage:
        key = week.date(), name or ""
        return found.setdefault(key, Usage(*key))

    took = ExpressionWrapper(F("end") - F("started_at"), output_field=DurationField())
    within: Any = attempts.filter(begins=F("ends")).values("ends", name=F(NAMES[by]), **FACTORS)
    for row in within.annotate(total=Sum(took), number=Count("pk")):
        factors = row["processes"], row["num_gpus"]
        usage(row["ends"], row["name"]).add(row["total"], *factors, row["number"])
    across: Any = attempts.exclude(begins=F("ends")).values(
        "started_at", "end", name=F(NAMES[by]), **FACTORS
    )
    for row in across.iterator():
        for week, time in _by_week(max(row["started_at"], first_week), row["end"]):
            usage(week, row["name"]).add(time, row["processes"], row["num_gpus"])
    past: Any = PastUse.objects.filter(day__gte=first_week.date()).order_by()
    for row in past.values(
        "day", "num_attempts", "compute_seconds", "gpu_seconds", name=F(PAST_NAMES[by])
    ):
        monday = monday_of(datetime.combine(row["day"], datetime.min.time(), UTC))
        kept = usage(monday, row["name"])
        kept.num_attempts += row["num_attempts"]
        kept.compute_hours += row["compute_seconds"] / HOUR_SECONDS
        kept.gpu_hours += row["gpu_seconds"] / HOUR_SECONDS
    return sorted(found.values(), key=_place)


def _place(usage: Usage) -> tuple[int, float, str]:
    return -usage.week.toordinal(), -usage.compute_hours, usage.name


def _by_week(start: datetime, end: datetime) -> Iterator[tuple[datetime, timedelta]]:
    """Yield the weeks that a time is part of, and how much of it is in each."""
    while start < end:
        week = monday_of(start)
        until = min(end, week + WEEK)
        yield week, until - start
        start = until
