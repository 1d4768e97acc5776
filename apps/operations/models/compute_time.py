"""How long attempts computed, by their rows: times their processes, and times their GPUs."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import models
from django.db.models import (
    Case,
    DateTimeField,
    F,
    IntegerField,
    Q,
    QuerySet,
    Value,
    When,
)
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce, Length, Replace

from apps.operations.models.records import Attempt
from trainops.clock import DatabaseNow

HOUR_SECONDS = 3600
END = Coalesce("ended_at", DatabaseNow(), output_field=DateTimeField())
NUM_GPUS = Case(
    When(device="", then=Value(0)),
    default=Length("device") - Length(Replace("device", Value(","), Value(""))) + 1,
    output_field=IntegerField(),
)
# What the time of an attempt is multiplied with.
FACTORS: Mapping[str, Combinable] = {
    "processes": F("operation__processes") * F("num_nodes"),
    "num_gpus": NUM_GPUS * F("num_nodes"),  # each node has as many
}


def computing_since(moment: Any) -> QuerySet[Attempt]:
    """Return the attempts that computed after a moment: a datetime, or an expression for one.

    Coordinators are left out: their subtasks compute.
    """
    is_late = Q(ended_at=None) | Q(ended_at__gt=moment)
    return Attempt.objects.filter(is_late, operation__takes_slot=True).order_by()


def monday_of(moment: datetime) -> datetime:
    """Return the beginning of a moment's week, in UTC."""
    day = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day - timedelta(days=day.weekday())


def by_day(start: datetime, end: datetime) -> Iterator[tuple[datetime, timedelta]]:
    """Yield the days, in UTC, that a time is part of, and how much of it is in each."""
    while start < end:
        day = start.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        until = min(end, day + timedelta(days=1))
        yield day, until - start
        start = until


class Period(models.TextChoices):
    """For how long a budget lasts; weeks and months begin at midnight in UTC."""

    WEEK = "week", "this week"
    MONTH = "month", "this month"
    TOTAL = "total", "in total"

    def bounds(self, moment: datetime) -> tuple[datetime, datetime | None]:
        """Return the beginning of the period that a moment is in, and its end if it has one."""
        if self is Period.WEEK:
            monday = monday_of(moment)
            return monday, monday + timedelta(weeks=1)
        if self is Period.MONTH:
            day = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
            first = day.replace(day=1)
            return first, (first + timedelta(days=31)).replace(day=1)
        return datetime(1970, 1, 1, tzinfo=UTC), None
