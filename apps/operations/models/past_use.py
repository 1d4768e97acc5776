"""The time that attempts of deleted operations took; shares and the usage report count it."""

from collections import defaultdict
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import F

from apps.operations.models.compute_time import END, FACTORS, by_day
from apps.operations.models.records import Attempt


def _in_order(item: tuple[tuple[Any, ...], Any]) -> tuple[Any, ...]:
    (day, owner_id, project, kind), _ = item
    return day, owner_id or 0, project, kind


class PastUse(models.Model):
    """What attempts of deleted operations took on one day.

    Several rows may have the same day, owner, project and kind; their sum counts.
    """

    day = models.DateField(help_text="In UTC.")
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="past_uses"
    )
    project = models.CharField(max_length=64, blank=True)
    kind = models.CharField(max_length=16)
    num_attempts = models.PositiveIntegerField(
        default=0, help_text="Attempts; each counts on its first day in a week."
    )
    compute_seconds = models.FloatField(default=0, help_text="Time of attempts, times processes.")
    gpu_seconds = models.FloatField(default=0, help_text="Time of attempts, times their GPUs.")

    class Meta:
        ordering = ["day", "id"]
        indexes = [models.Index(fields=["day"], name="past_use_day")]

    def __str__(self) -> str:
        return f"{self.project or self.owner or self.kind} on {self.day}"

    @classmethod
    def keep(cls, operations: models.QuerySet[Any]) -> None:
        """Add what the attempts of operations took that are deleted in the same transaction."""
        attempts = Attempt.objects.filter(operation__in=operations, operation__takes_slot=True)
        rows: Any = attempts.order_by().values(
            "started_at",
            end=END,
            owner=F("operation__owner"),
            project=F("operation__project"),
            kind=F("operation__kind"),
            **FACTORS,
        )
        sums: dict[tuple[Any, ...], dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for row in rows:
            for number, (day, time) in enumerate(by_day(row["started_at"], row["end"])):
                used = sums[day.date(), row["owner"], row["project"], row["kind"]]
                used["num_attempts"] += number == 0 or day.weekday() == 0
                used["compute_seconds"] += time.total_seconds() * row["processes"]
                used["gpu_seconds"] += time.total_seconds() * row["num_gpus"]
        # In one order, so that deletions at once do not wait for each other in a circle.
        for (day, owner_id, project, kind), used in sorted(sums.items(), key=_in_order):
            key = {"day": day, "owner_id": owner_id, "project": project, "kind": kind}
            known = cls.objects.filter(**key).values_list("pk", flat=True).first()
            if known is None:
                cls.objects.create(**key, **used)
            else:
                more = {name: F(name) + value for name, value in used.items()}
                cls.objects.filter(pk=known).update(**more)
