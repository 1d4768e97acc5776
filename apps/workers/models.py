"""The registry's memory of workers. Status is derived from the heartbeat, never stored."""

from datetime import timedelta

from django.conf import settings
from django.db import models
from django.db.models import Case, ExpressionWrapper, F, Q, Value, When

from trainops.clock import DatabaseNow

LOCAL = "celery"  # the type of workers that are processes of this installation


class WorkerQuerySet(models.QuerySet["Worker"]):
    def taking_work(self) -> "WorkerQuerySet":
        """Those that work can be given to: this installation's, and others that ask for it.

        Who only registers, as a monitor may, must not be waited for, nor take a host's place.
        """
        window = timedelta(seconds=settings.THRESHOLDS.worker_gone_seconds)
        return self.filter(Q(worker_type=LOCAL) | Q(asked_at__gt=DatabaseNow() - window))

    def with_status(self) -> "WorkerQuerySet":
        """Annotate `status` and `time_left`, judged by the database's clock."""
        limits = settings.THRESHOLDS
        age = ExpressionWrapper(
            DatabaseNow() - F("heartbeat_at"), output_field=models.DurationField()
        )
        left = ExpressionWrapper(F("ends_at") - DatabaseNow(), output_field=models.DurationField())
        return self.annotate(silence=age, time_left=left).annotate(
            status=Case(
                When(
                    silence__gt=timedelta(seconds=limits.worker_gone_seconds),
                    then=Value(Worker.Status.GONE),
                ),
                When(
                    silence__gt=timedelta(seconds=limits.health_check_timeout_seconds),
                    then=Value(Worker.Status.TEMPORARILY_UNAVAILABLE),
                ),
                When(is_draining=True, then=Value(Worker.Status.DRAINING)),
                # Operations in wait slots are not counted.
                When(
                    Q(num_running__gt=0) | ~Q(current_operation_id=""),
                    then=Value(Worker.Status.BUSY),
                ),
                When(~Q(storage_problem=""), then=Value(Worker.Status.STORAGE_AWAY)),
                default=Value(Worker.Status.AVAILABLE),
                output_field=models.CharField(),
            )
        )


class Worker(models.Model):
    class Status(models.TextChoices):
        AVAILABLE = "AVAILABLE"
        BUSY = "BUSY"
        STORAGE_AWAY = "STORAGE_AWAY"
        DRAINING = "DRAINING"
        TEMPORARILY_UNAVAILABLE = "TEMPORARILY_UNAVAILABLE"
        GONE = "GONE"

    worker_id = models.CharField(primary_key=True, max_length=120)
    worker_type = models.CharField(max_length=32, default=LOCAL)
    endpoint_url = models.CharField(max_length=255, blank=True)
    host = models.CharField(max_length=120, blank=True)
    pid = models.PositiveIntegerField(null=True, blank=True)
    process = models.JSONField(
        default=dict,
        blank=True,
        help_text="Identity that distinguishes it from every other process.",
    )
    kinds = models.JSONField(default=list)
    labels = models.JSONField(default=list)
    slots = models.PositiveIntegerField(default=1)
    num_running = models.PositiveIntegerField(default=0)
    capabilities = models.JSONField(default=dict)
    storage_free_bytes = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="Free bytes of the checkpoint storage; null: unknown."
    )
    storage_problem = models.TextField(
        blank=True, help_text="Reason it cannot read or write checkpoints now."
    )
    dataset_problem = models.TextField(
        blank=True, default="", db_default="", help_text="Reason it cannot read datasets now."
    )
    current_operation_id = models.CharField(max_length=64, blank=True)
    is_draining = models.BooleanField(default=False)
    registered_at = models.DateTimeField(db_default=DatabaseNow())
    heartbeat_at = models.DateTimeField(db_default=DatabaseNow())
    asked_at = models.DateTimeField(
        null=True, blank=True, help_text="Time of its last request for work over HTTP."
    )
    ends_at = models.DateTimeField(
        null=True, blank=True, help_text="Time at which it saves and ends by itself."
    )
    idle_exit_seconds = models.FloatField(
        null=True, blank=True, help_text="Seconds without work after which it ends by itself."
    )
    last_error = models.TextField(blank=True)
    drain_reason = models.TextField(blank=True)
    trusted_since = models.DateTimeField(
        db_default=DatabaseNow(), help_text="Crashes before this time do not count against it."
    )

    objects = WorkerQuerySet.as_manager()

    class Meta:
        ordering = ["worker_id"]

    def __str__(self) -> str:
        return self.worker_id


class LoadSample(models.Model):
    """How busy the machine of a worker was; see `load`."""

    worker = models.ForeignKey(Worker, models.CASCADE, related_name="load_samples")
    at = models.DateTimeField(db_default=DatabaseNow())
    cpu_percent = models.FloatField(help_text="Mean of all cores since the sample before.")
    memory_bytes = models.PositiveBigIntegerField()
    gpus = models.JSONField(default=list, help_text="id, percent and memory_bytes of each GPU.")

    class Meta:
        indexes = [
            models.Index(fields=["worker", "at"], name="load_worker_at"),
            models.Index(fields=["at"], name="load_at"),
        ]

    def __str__(self) -> str:
        return f"{self.worker_id} at {self.at:%Y-%m-%d %H:%M}"
