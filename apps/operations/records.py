"""What is remembered of an operation's attempts: their runs, events, points and printed lines."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from apps.operations.lifecycle import Reason
from trainops.clock import DatabaseNow


class Attempt(models.Model):
    """One run of an operation on one worker."""

    class Outcome(models.TextChoices):
        RUNNING = "running"
        COMPLETED = "completed"
        CANCELLED = "cancelled"
        FAILED = "failed"
        PREEMPTED = "preempted"
        LOST = "lost"

    operation = models.ForeignKey("operations.Operation", models.CASCADE, related_name="attempts")
    number = models.PositiveIntegerField()
    worker_id = models.CharField(max_length=120)
    host = models.CharField(max_length=120, blank=True)
    pid = models.PositiveIntegerField(null=True, blank=True)
    device = models.CharField(max_length=64, blank=True)
    started_at = models.DateTimeField(db_default=DatabaseNow())
    ended_at = models.DateTimeField(null=True, blank=True)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, default=Outcome.RUNNING)
    reason = models.CharField(max_length=24, choices=Reason.choices, blank=True)
    note = models.TextField(blank=True)
    from_step = models.PositiveBigIntegerField(null=True, blank=True)
    to_step = models.PositiveBigIntegerField(default=0)
    measured_to = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="The last step whose points it did not measure again."
    )
    receipt = models.JSONField(null=True, blank=True, help_text="What the resume restored.")
    timings = models.JSONField(default=dict, blank=True, help_text="Seconds to the first step.")

    class Meta:
        ordering = ["-number"]
        constraints = [
            models.UniqueConstraint(fields=["operation", "number"], name="one_attempt_per_number")
        ]
        indexes = [models.Index(fields=["ended_at"], name="attempts_of_late")]

    def __str__(self) -> str:
        return f"{self.operation_id} attempt {self.number}"

    @classmethod
    def last_begun(cls, operation_id: str, *, before: int) -> int:
        """Return the newest attempt before this one that is known to have begun to compute."""
        begun = cls.objects.filter(operation_id=operation_id, number__lt=before)
        newest = begun.exclude(receipt=None).values_list("number", flat=True).first()
        return newest or 0

    @classmethod
    def seconds_spent(cls, operation_id: str) -> float:
        """Return how long the operation's ended attempts took together.

        Counted from the newest one that its time limit ended: who resumes it from there grants it
        the time once more.
        """
        ended = cls.objects.filter(operation_id=operation_id, ended_at__isnull=False)
        total = 0.0
        for started_at, ended_at, reason in ended.values_list("started_at", "ended_at", "reason"):
            if reason == Reason.TIME_LIMIT:
                break
            total += (ended_at - started_at).total_seconds()
        return total


class Event(models.Model):
    """One thing that happened to an operation: what, when, by whom, why. Never changed."""

    operation = models.ForeignKey("operations.Operation", models.CASCADE, related_name="events")
    at = models.DateTimeField(db_default=DatabaseNow())
    what = models.CharField(max_length=32)
    actor = models.CharField(max_length=150, help_text="A person, a worker, beat.")
    note = models.TextField(blank=True)
    from_state = models.CharField(max_length=10, blank=True)
    attempt = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.what} by {self.actor}"


class MetricPoint(models.Model):
    """One value of one metric at one step, as one attempt measured it.

    A resume retires the points that do not lead to where it starts: they stay, drawn dashed.
    """

    # Without an index of its own: the one below serves it, and what came since, too.
    operation = models.ForeignKey(
        "operations.Operation", models.CASCADE, related_name="points", db_index=False
    )
    attempt = models.PositiveIntegerField()
    name = models.CharField(max_length=64)
    step = models.PositiveBigIntegerField()
    value = models.FloatField(null=True, help_text="Null where it is not finite.")
    not_finite = models.CharField(max_length=4, blank=True, help_text="nan, inf or -inf")
    at = models.DateTimeField()
    retired_by = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        ordering = ["step", "attempt"]
        indexes = [models.Index(fields=["operation", "id"], name="points_since")]
        constraints = [
            models.UniqueConstraint(
                fields=["operation", "name", "step", "attempt"], name="one_point_per_step"
            )
        ]

    def __str__(self) -> str:
        return f"{self.name}@{self.step}"


class LogChunk(models.Model):
    """Some lines that an attempt's process wrote, as they came."""

    operation = models.ForeignKey("operations.Operation", models.CASCADE, related_name="log_chunks")
    attempt = models.PositiveIntegerField()
    at = models.DateTimeField(db_default=DatabaseNow())
    text = models.TextField()

    class Meta:
        ordering = ["id"]
        indexes = [models.Index(fields=["operation", "attempt", "id"], name="log_of_attempt")]

    def __str__(self) -> str:
        return f"{self.operation_id}/{self.attempt}"


class Study(models.Model):
    """Many operations that differ in some values of their config, to be compared."""

    id = models.CharField(primary_key=True, max_length=40)
    name = models.CharField(max_length=120)
    kind = models.CharField(max_length=16)
    recipe = models.CharField(max_length=64, blank=True)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="studies"
    )
    config = models.JSONField(help_text="What all of them share, as submitted.")
    design = models.JSONField(help_text="Which values are tried, and how.")
    submission = models.JSONField(help_text="Tags, priority and label of each.")
    metric = models.CharField(max_length=80, help_text="Dotted path in the result.")
    mode = models.CharField(max_length=3, help_text="min or max")
    folds = models.JSONField(default=list, blank=True, help_text="Of a walk-forward analysis.")
    left_out = models.JSONField(default=list, blank=True, help_text="Values that no config takes.")
    num_planned = models.PositiveIntegerField(help_text="Operations there are going to be.")
    stopped_at = models.DateTimeField(null=True, blank=True, help_text="No more are submitted.")
    idempotency_key = models.CharField(max_length=120, blank=True)
    request_hash = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField(db_default=DatabaseNow())

    class Meta:
        ordering = ["-created_at", "-id"]
        verbose_name_plural = "studies"
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "idempotency_key"],
                condition=~Q(idempotency_key=""),
                name="one_study_per_idempotency_key",
            )
        ]

    def __str__(self) -> str:
        return self.name or self.pk

    def get_absolute_url(self) -> str:
        return f"/studies/{self.pk}/"
