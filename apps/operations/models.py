"""What is remembered of operations. Every change of state goes through `OperationQuerySet.move`."""

from collections.abc import Collection
from datetime import timedelta
from typing import Any, Self

from django.conf import settings
from django.db import models, transaction
from django.db.models import Q
from django.db.models.functions import Coalesce

from apps.operations.lifecycle import (
    ACTIVE,
    FINISHED,
    Reason,
    State,
    sources_of,
)
from apps.operations.placement import Need, Offer
from apps.operations.privacy import PrivacyAccount, PrivacyEntry
from apps.operations.records import Attempt, Event, LogChunk, MetricPoint, Study
from trainops.clock import DatabaseNow

__all__ = [
    "PART",
    "Attempt",
    "ClientPart",
    "DatasetUse",
    "Event",
    "LogChunk",
    "MetricPoint",
    "ModelUse",
    "Operation",
    "OperationQuerySet",
    "PrivacyAccount",
    "PrivacyEntry",
    "Study",
    "Tag",
    "is_part",
    "seconds_from_now",
]


PART = "client"  # in the ids of operations that are a client's part of another one


def is_part(operation_id: str) -> bool:
    """Whether an operation is a client's part of another, by its id: made in one place only."""
    return operation_id.startswith(f"op_{PART}_")


def seconds_from_now(seconds: float) -> Any:
    """Return an expression for a moment on the database's clock, the only one that is trusted."""
    return models.ExpressionWrapper(
        DatabaseNow() + timedelta(seconds=seconds), output_field=models.DateTimeField()
    )


# Written out, not as parameters: SQLite uses an index of some rows only where it sees at once that
# the question is about those. Without it, a claim reads every operation there ever was.
_IS_WAITING = models.Func(
    models.F("state"),
    template="%(expressions)s IN ('PENDING', 'RESUMING')",
    output_field=models.BooleanField(),
)


class OperationQuerySet(models.QuerySet["Operation"]):
    def owned(self, operation_id: str, attempt: int) -> Self:
        """The fence: the row, if `attempt` still owns the operation; else nothing."""
        return self.filter(pk=operation_id, attempt=attempt, state=State.RUNNING)

    def waiting(self) -> Self:
        return self.filter(_IS_WAITING)

    def due(self) -> Self:
        """Waiting, and not held back by a pause before a restart."""
        return self.waiting().filter(Q(not_before=None) | Q(not_before__lte=DatabaseNow()))

    def served_by(self, kinds: Collection[str], labels: Collection[str]) -> Self:
        return self.filter(kind__in=kinds, queue__in=["", *labels])

    def fitting(self, offer: Offer) -> Self:
        """What a worker that offers this may take. Plain comparisons of columns: see the index."""
        return self.served_by(offer.kinds, offer.labels).filter(
            device__in=offer.possible_devices,
            gpu_memory_bytes__lte=offer.gpu_memory_bytes,
            memory_bytes__lte=offer.memory_bytes,
            checkpoint_bytes__lte=offer.disk_bytes // 2,  # Need.disk_bytes
        )

    def next_first(self) -> Self:
        """In the order in which they are taken."""
        return self.order_by("-priority", "queued_at", "id")

    def whole(self) -> Self:
        """Without those that are a client's part of another one."""
        return self.filter(part=None)

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
    request_hash = models.CharField(
        max_length=64, blank=True, help_text="SHA-256 of all that was asked for with the key."
    )
    priority = models.SmallIntegerField(default=0)
    queue = models.CharField(max_length=64, blank=True, help_text="The label it asks for.")
    device = models.CharField(max_length=4, default="auto", help_text="auto, cpu or cuda")
    gpu_memory_bytes = models.PositiveBigIntegerField(default=0, help_text="At least.")
    memory_bytes = models.PositiveBigIntegerField(default=0, help_text="At least, of the machine.")
    checkpoint_bytes = models.PositiveBigIntegerField(default=0, help_text="Of its last one.")

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

    forked_from = models.ForeignKey(
        "self", models.SET_NULL, null=True, blank=True, related_name="forks"
    )

    study = models.ForeignKey(
        Study, models.CASCADE, null=True, blank=True, related_name="operations"
    )
    study_values = models.JSONField(default=dict, blank=True, help_text="What it tries.")
    fold = models.PositiveSmallIntegerField(default=0, help_text="Of a walk-forward; from 1.")
    is_test = models.BooleanField(default=False, help_text="Tries what its fold chose.")

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
                fields=["kind", "queue", "-priority", "queued_at", "id"],
                condition=Q(state__in=["PENDING", "RESUMING"]),
                name="operation_next",
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
            models.UniqueConstraint(
                fields=["study", "fold"],
                condition=Q(is_test=True),
                name="one_test_per_fold",
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
    def need(self) -> Need:
        return Need(
            device=self.device,
            gpu_memory_bytes=self.gpu_memory_bytes,
            memory_bytes=self.memory_bytes,
            checkpoint_bytes=self.checkpoint_bytes,
        )

    @property
    def retention(self) -> dict[str, Any]:
        """What apps.checkpoints.services.retain is to keep."""
        keep = self.config["checkpoint"]
        return {
            "keep_last": keep["keep_last"],
            "keep_best": keep["keep_best"],
            "better": self.config.get("mode", "min"),
        }

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


class ClientPart(models.Model):
    """An operation is what one client does in one round of a distributed one, its server.

    The same part of the same model is there once, so a server that asks again finds it.
    """

    operation = models.OneToOneField(
        Operation, models.CASCADE, primary_key=True, related_name="part"
    )
    server = models.ForeignKey(Operation, models.CASCADE, related_name="parts")
    round = models.PositiveBigIntegerField()
    client = models.PositiveIntegerField()
    epochs = models.PositiveIntegerField(help_text="Local epochs that it may train.")
    name = models.CharField(max_length=64, help_text="For people.")
    begins_with = models.CharField(max_length=64, help_text="Names the model.")
    given_id = models.CharField(
        max_length=64, help_text="The server's checkpoint that has it; it stays meanwhile."
    )
    sent_at = models.DateTimeField(db_default=DatabaseNow())

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["server", "round", "client", "epochs", "begins_with"],
                name="one_part_per_client_and_model",
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} of round {self.round}"


class ModelUse(models.Model):
    """An operation uses the model that another trained: it stays until the operation has ended."""

    operation = models.ForeignKey(Operation, models.CASCADE, related_name="models_used")
    source = models.ForeignKey(Operation, models.CASCADE, related_name="model_users")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["operation", "source"], name="one_use_per_model")
        ]

    def __str__(self) -> str:
        return self.source_id

    @classmethod
    def active_users_of(cls, source_id: str) -> list[str]:
        """Return the operations that are not finished and use its model."""
        uses = cls.objects.filter(source_id=source_id, operation__state__in=ACTIVE)
        return list(uses.values_list("operation_id", flat=True))
