"""What is remembered of operations. Every change of state goes through `OperationQuerySet.move`."""

from datetime import timedelta
from typing import Any, Self

from django.conf import settings
from django.db import models, transaction
from django.db.models import Q
from django.db.models.functions import Coalesce

from apps.operations.lifecycle import (
    ACTIVE,
    FINISHED,
    WAITING,
    Reason,
    State,
    sources_of,
)
from trainops.clock import DatabaseNow


def seconds_from_now(seconds: float) -> Any:
    """Return an expression for a moment on the database's clock, the only one that is trusted."""
    return models.ExpressionWrapper(
        DatabaseNow() + timedelta(seconds=seconds), output_field=models.DateTimeField()
    )


class OperationQuerySet(models.QuerySet["Operation"]):
    def owned(self, operation_id: str, attempt: int) -> Self:
        """The fence: the row, if `attempt` still owns the operation; else nothing."""
        return self.filter(pk=operation_id, attempt=attempt, state=State.RUNNING)

    def waiting(self) -> Self:
        return self.filter(state__in=WAITING)

    def due(self) -> Self:
        """Waiting, and not held back by a pause before a restart."""
        return self.waiting().filter(Q(not_before=None) | Q(not_before__lte=DatabaseNow()))

    def active(self) -> Self:
        return self.filter(state__in=ACTIVE)

    def silent(self) -> Self:
        """RUNNING, but the lease has run out: no worker claims it."""
        return self.filter(state=State.RUNNING, lease_expires_at__lt=DatabaseNow())

    def move(self, to: State, *, actor: str, note: str = "", **fields: Any) -> bool:
        """Move the one operation in this queryset to `to`, with its event; False if it may not.

        Losing a race is a normal answer: whoever moved it first decided.
        """
        with transaction.atomic():
            row = self.filter(state__in=sources_of(to)).select_for_update().first()
            if row is None:
                return False
            moved = type(self)(self.model).filter(pk=row.pk, state=row.state, attempt=row.attempt)
            if not moved.update(state=to, **_stamps(to), **fields):
                return False
            attempt = row.attempt + 1 if "attempt" in fields else row.attempt
            row.record(to, actor=actor, note=note, from_state=row.state, attempt=attempt)
        return True


def _stamps(to: State) -> dict[str, Any]:
    """Return the timestamps that belong to a state, so that no caller can forget one."""
    if to is State.RUNNING:
        return {
            "started_at": Coalesce("started_at", DatabaseNow()),
            "finished_at": None,
            "reason": "",
        }
    if to in FINISHED:
        return {
            "finished_at": DatabaseNow(),
            "lease_expires_at": None,
            "worker_id": "",
            "not_before": None,
            "stop_requested": "",
        }
    return {
        "queued_at": DatabaseNow(),
        "finished_at": None,
        "lease_expires_at": None,
        "worker_id": "",
        "stop_requested": "",
        "stop_requested_at": None,
        "stop_requested_by": "",
    }


class Operation(models.Model):
    """One long job that somebody asked for: what is wanted, how far it is, how it ended."""

    class Stop(models.TextChoices):
        NONE = "", ""
        CANCEL = "cancel", "Cancel: save a checkpoint at the next safe point, then stop"
        KILL = "kill", "Kill: stop now; the work since the last checkpoint is lost"

    id = models.CharField(primary_key=True, max_length=64)
    kind = models.CharField(max_length=16)
    recipe = models.CharField(max_length=64, blank=True)
    name = models.CharField(max_length=120)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="operations",
    )
    config_given = models.JSONField(help_text="As submitted.")
    config = models.JSONField(help_text="As validated, defaults filled in.")
    config_hash = models.CharField(max_length=64)
    idempotency_key = models.CharField(max_length=120, blank=True)
    priority = models.SmallIntegerField(default=0)
    queue = models.CharField(max_length=64, blank=True)

    state = models.CharField(max_length=10, choices=State.choices, default=State.PENDING)
    reason = models.CharField(max_length=24, choices=Reason.choices, blank=True)
    stop_requested = models.CharField(max_length=6, choices=Stop.choices, blank=True)
    stop_requested_at = models.DateTimeField(null=True, blank=True)
    stop_requested_by = models.CharField(max_length=150, blank=True)

    attempt = models.PositiveIntegerField(default=0, help_text="The fencing token.")
    worker_id = models.CharField(max_length=120, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    not_before = models.DateTimeField(null=True, blank=True, help_text="Paused before a restart.")
    restarts_used = models.PositiveIntegerField(default=0, help_text="Since the last progress.")
    resume_from = models.CharField(max_length=64, blank=True, help_text="A chosen checkpoint.")
    hinted_at = models.DateTimeField(null=True, blank=True)
    num_hints = models.PositiveIntegerField(default=0)

    unit = models.CharField(max_length=32, blank=True)
    place = models.CharField(max_length=120, blank=True, help_text="For people: epoch 3 of 20.")
    step = models.PositiveBigIntegerField(default=0)
    total_steps = models.PositiveBigIntegerField(default=0)
    steps_per_second = models.FloatField(null=True, blank=True)
    progressed_at = models.DateTimeField(null=True, blank=True)
    metrics = models.JSONField(default=dict, blank=True, help_text="The newest value of each.")

    created_at = models.DateTimeField(db_default=DatabaseNow())
    queued_at = models.DateTimeField(db_default=DatabaseNow())
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    result = models.JSONField(null=True, blank=True)
    error = models.JSONField(null=True, blank=True, help_text="code, message, traceback")

    objects = OperationQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="operation_newest"),
            models.Index(fields=["kind", "-created_at", "-id"], name="operation_kind"),
            models.Index(fields=["owner", "-created_at", "-id"], name="operation_owner"),
            models.Index(fields=["state", "-created_at", "-id"], name="operation_state"),
            models.Index(
                fields=["-priority", "queued_at"],
                condition=Q(state__in=["PENDING", "RESUMING"]),
                name="operation_waiting",
            ),
            models.Index(
                fields=["lease_expires_at"],
                condition=Q(state="RUNNING"),
                name="operation_leases",
            ),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=State.values), name="operation_state_is_known"
            ),
            models.CheckConstraint(
                condition=~Q(state=State.RUNNING) | Q(lease_expires_at__isnull=False),
                name="running_implies_a_lease",
            ),
            models.UniqueConstraint(
                fields=["owner", "idempotency_key"],
                condition=~Q(idempotency_key=""),
                name="one_operation_per_idempotency_key",
            ),
        ]

    def __str__(self) -> str:
        return self.name or self.pk

    def get_absolute_url(self) -> str:
        return f"/operations/{self.pk}/"

    @property
    def row(self) -> OperationQuerySet:
        """This row as a queryset: whatever is asked of it, the database answers."""
        return Operation.objects.filter(pk=self.pk)

    @property
    def percent(self) -> float:
        return 100.0 * self.step / self.total_steps if self.total_steps else 0.0

    @property
    def eta_seconds(self) -> float | None:
        if self.state != State.RUNNING or not self.steps_per_second:
            return None
        return max(0, self.total_steps - self.step) / self.steps_per_second

    @property
    def is_finished(self) -> bool:
        return self.state in FINISHED

    def record(
        self, what: str, *, actor: str, note: str = "", from_state: str = "", attempt: int = -1
    ) -> None:
        """Write down what happened, by whom and why."""
        Event.objects.create(
            operation_id=self.pk,
            what=what,
            actor=actor,
            note=note,
            from_state=from_state,
            attempt=self.attempt if attempt < 0 else attempt,
        )


class Tag(models.Model):
    operation = models.ForeignKey(Operation, models.CASCADE, related_name="tags")
    name = models.CharField(max_length=64)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["name", "operation"], name="one_tag_per_name")
        ]

    def __str__(self) -> str:
        return self.name


class DatasetUse(models.Model):
    """An operation reads a dataset: it cannot be deleted before the operation has ended."""

    operation = models.ForeignKey(Operation, models.CASCADE, related_name="datasets")
    dataset_id = models.CharField(max_length=32, db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["operation", "dataset_id"], name="one_use_per_dataset")
        ]

    def __str__(self) -> str:
        return self.dataset_id

    @classmethod
    def active_users_of(cls, dataset_id: str) -> list[str]:
        """Return the operations that are not finished and read it."""
        uses = cls.objects.filter(dataset_id=dataset_id, operation__state__in=ACTIVE)
        return list(uses.values_list("operation_id", flat=True))


class Attempt(models.Model):
    """One run of an operation on one worker."""

    class Outcome(models.TextChoices):
        RUNNING = "running"
        COMPLETED = "completed"
        CANCELLED = "cancelled"
        FAILED = "failed"
        PREEMPTED = "preempted"
        LOST = "lost"

    operation = models.ForeignKey(Operation, models.CASCADE, related_name="attempts")
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
    receipt = models.JSONField(null=True, blank=True, help_text="What the resume restored.")
    timings = models.JSONField(default=dict, blank=True, help_text="Seconds to the first step.")

    class Meta:
        ordering = ["-number"]
        constraints = [
            models.UniqueConstraint(fields=["operation", "number"], name="one_attempt_per_number")
        ]

    def __str__(self) -> str:
        return f"{self.operation_id} attempt {self.number}"


class Event(models.Model):
    """One thing that happened to an operation: what, when, by whom, why. Never changed."""

    operation = models.ForeignKey(Operation, models.CASCADE, related_name="events")
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

    A resume from step N retires the points of older attempts after N: they stay, drawn dashed.
    """

    # Without an index of its own: the one below serves it, and what came since, too.
    operation = models.ForeignKey(Operation, models.CASCADE, related_name="points", db_index=False)
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

    @classmethod
    def retire(cls, operation_id: str, *, by: int, after_step: int) -> int:
        """Retire what older attempts measured after the step that attempt `by` starts from."""
        return cls.objects.filter(
            operation_id=operation_id, attempt__lt=by, step__gt=after_step, retired_by=None
        ).update(retired_by=by)


class LogChunk(models.Model):
    """Some lines that an attempt's process wrote, as they came."""

    operation = models.ForeignKey(Operation, models.CASCADE, related_name="log_chunks")
    attempt = models.PositiveIntegerField()
    at = models.DateTimeField(db_default=DatabaseNow())
    text = models.TextField()

    class Meta:
        ordering = ["id"]
        indexes = [models.Index(fields=["operation", "attempt", "id"], name="log_of_attempt")]

    def __str__(self) -> str:
        return f"{self.operation_id}/{self.attempt}"
