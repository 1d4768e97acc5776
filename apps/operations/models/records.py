"""What is remembered of an operation's attempts: their runs, events, points and printed lines."""

from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import ExpressionWrapper, F, Q

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
    device = models.CharField(
        max_length=4096, blank=True, help_text="GPUs of its processes, separated by commas."
    )
    num_nodes = models.PositiveSmallIntegerField(
        default=1, db_default=1, help_text="Workers that compute it; the others have Node rows."
    )
    started_at = models.DateTimeField(db_default=DatabaseNow())
    ended_at = models.DateTimeField(null=True, blank=True)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, default=Outcome.RUNNING)
    reason = models.CharField(max_length=24, choices=Reason.choices, blank=True)
    note = models.TextField(blank=True)
    handback_reason = models.CharField(
        max_length=24,
        choices=Reason.choices,
        blank=True,
        default="",
        db_default="",
        help_text="Why the platform asked for it to be saved and queued again.",
    )
    handback_note = models.TextField(blank=True, default="", db_default="")
    preempted_for = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        help_text="Operation that it makes room for.",
    )
    from_step = models.PositiveBigIntegerField(null=True, blank=True)
    to_step = models.PositiveBigIntegerField(default=0)
    measured_to = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="Last step whose points it did not measure again."
    )
    receipt = models.JSONField(null=True, blank=True, help_text="Restored parts of the state.")
    timings = models.JSONField(
        default=dict, blank=True, help_text="Seconds to the first step, by phase."
    )

    class Meta:
        ordering = ["-number"]
        constraints = [
            models.UniqueConstraint(fields=["operation", "number"], name="one_attempt_per_number")
        ]
        indexes = [
            models.Index(fields=["ended_at"], name="attempts_of_late"),
            models.Index(
                fields=["preempted_for"],
                condition=Q(preempted_for__gt=""),
                name="attempts_preempted",
            ),
        ]

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

    @staticmethod
    def seconds_of(attempts: "models.QuerySet[Attempt]") -> float:
        """Return how long those of the attempts that have ended took together."""
        took = ExpressionWrapper(F("ended_at") - F("started_at"), models.DurationField())
        total = attempts.filter(ended_at__isnull=False).aggregate(total=models.Sum(took))["total"]
        return float(total.total_seconds()) if total else 0.0


class Event(models.Model):
    """One thing that happened to an operation: what, when, by whom, why. Never changed."""

    operation = models.ForeignKey("operations.Operation", models.CASCADE, related_name="events")
    at = models.DateTimeField(db_default=DatabaseNow())
    what = models.CharField(max_length=32)
    actor = models.CharField(max_length=150, help_text="User, worker or beat.")
    note = models.TextField(blank=True)
    from_state = models.CharField(max_length=10, blank=True)
    reason = models.CharField(
        max_length=24, blank=True, default="", db_default="", help_text="Reason of the new state."
    )
    attempt = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.what} by {self.actor}"


class Subscription(models.Model):
    """How far a subscriber of the events has come; see `apps.operations.outbox`."""

    name = models.CharField(primary_key=True, max_length=32)
    cursor = models.BigIntegerField(default=0, help_text="Events up to this id were delivered.")
    gaps = models.JSONField(
        default=dict, blank=True, help_text="Missing ids below it, and when they were missed."
    )
    retries = models.JSONField(
        default=dict,
        blank=True,
        help_text="Failed events below it, and when each is retried.",
    )

    def __str__(self) -> str:
        return f"{self.name} at event {self.cursor}"


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
    value = models.FloatField(null=True, help_text="Value; null if it is not finite.")
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


class PackedPoints(models.Model):
    """Copies of metric points of one curve, in one row: what charts read of a long curve.

    The packs of an operation hold all its points up to the highest `last_id`.
    """

    MAX_UNPACKED = 2048  # points of an operation; from there on they are packed

    # Without an index of its own: the one below serves it.
    operation = models.ForeignKey(
        "operations.Operation", models.CASCADE, related_name="packed_points", db_index=False
    )
    attempt = models.PositiveIntegerField()
    name = models.CharField(max_length=64)
    retired_by = models.PositiveIntegerField(null=True, blank=True)
    num_points = models.PositiveIntegerField()
    first_step = models.PositiveBigIntegerField()
    last_step = models.PositiveBigIntegerField()
    last_id = models.BigIntegerField(help_text="Highest id of a point that it was made of.")
    width = models.PositiveBigIntegerField(help_text="Steps to which `coarse` is thinned.")
    coarse = models.BinaryField(help_text="Points thinned to `width`.")
    points = models.BinaryField(help_text="All points, by step.")

    class Meta:
        ordering = ["id"]
        indexes = [models.Index(fields=["operation", "last_id"], name="packed_points_to")]

    def __str__(self) -> str:
        return f"{self.name}@{self.first_step}-{self.last_step}"

    @classmethod
    def newest_id(cls, operation_id: str) -> int:
        """Return the id of the operation's newest point that is packed; 0: none is."""
        newest = cls.objects.filter(operation_id=operation_id).aggregate(id=models.Max("last_id"))
        return newest["id"] or 0


class LogChunk(models.Model):
    """Some lines that an attempt's process wrote, as they came."""

    # Without an index of its own: one of those below serves it.
    operation = models.ForeignKey(
        "operations.Operation", models.CASCADE, related_name="log_chunks", db_index=False
    )
    attempt = models.PositiveIntegerField()
    at = models.DateTimeField(db_default=DatabaseNow())
    text = models.TextField()

    class Meta:
        ordering = ["id"]
        indexes = [
            models.Index(fields=["operation", "id"], name="log_of_operation"),
            models.Index(fields=["operation", "attempt", "id"], name="log_of_attempt"),
        ]

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
    config = models.JSONField(help_text="Shared config, as submitted.")
    design = models.JSONField(help_text="Values to try, and the search method.")
    submission = models.JSONField(help_text="Tags, priority and label of each operation.")
    project = models.CharField(max_length=64, blank=True, default="", db_default="")
    metric = models.CharField(max_length=80, help_text="Dotted path in the result.")
    mode = models.CharField(max_length=3, help_text="min or max")
    folds = models.JSONField(
        default=list, blank=True, help_text="Folds of a walk-forward analysis."
    )
    left_out = models.JSONField(
        default=list, blank=True, help_text="Combinations of values that are invalid."
    )
    num_planned = models.PositiveIntegerField(help_text="Number of planned operations.")
    num_trials = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Number of trials; 0 in a walk-forward analysis."
    )
    max_seconds = models.FloatField(
        null=True, blank=True, help_text="Compute time after which no trial is submitted."
    )
    past_seconds = models.FloatField(
        default=0, db_default=0, help_text="Compute time of deleted trials."
    )
    sampler_state = models.TextField(
        blank=True, db_default="", help_text="Attributes of Optuna's study, signed."
    )
    stopped_at = models.DateTimeField(
        null=True, blank=True, help_text="Time at which submission was stopped."
    )
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

    @property
    def seconds_spent(self) -> float:
        """Compute time of all attempts that have ended, also of deleted trials."""
        return self.past_seconds + Attempt.seconds_of(Attempt.objects.filter(operation__study=self))

    @classmethod
    def keep_seconds(cls, operation: Any) -> None:
        """Add the compute time of a trial that is deleted in the same transaction."""
        seconds = Attempt.seconds_of(Attempt.objects.filter(operation=operation))
        study = cls.objects.filter(pk=operation.study_id)
        study.update(past_seconds=F("past_seconds") + seconds)


class Tag(models.Model):
    operation = models.ForeignKey("operations.Operation", models.CASCADE, related_name="tags")
    name = models.CharField(max_length=64)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["name", "operation"], name="one_tag_per_name")
        ]

    def __str__(self) -> str:
        return self.name


class Suggestion(models.Model):
    """Values that a study's sampler suggested: a trial.

    Several suggestions of the same values share an operation, as its result would be the same.
    Without an operation the trial failed: its config is invalid, or the operation was deleted.
    """

    study = models.ForeignKey(Study, models.CASCADE, related_name="suggestions")
    number = models.PositiveIntegerField(help_text="Number of the trial, from 0.")
    values = models.JSONField(help_text="By dotted path in the config.")
    state = models.TextField(
        blank=True, db_default="", help_text="Attributes of Optuna's trial, signed."
    )
    operation = models.ForeignKey(
        "operations.Operation", models.SET_NULL, null=True, blank=True, related_name="suggestions"
    )

    class Meta:
        ordering = ["number"]
        constraints = [
            models.UniqueConstraint(fields=["study", "number"], name="one_suggestion_per_number")
        ]

    def __str__(self) -> str:
        return f"{self.study_id} trial {self.number}"
