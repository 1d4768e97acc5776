"""What is remembered of operations. Every change of state goes through `OperationQuerySet.move`."""

from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q

from apps.operations.lifecycle import FINISHED, Reason, State
from apps.operations.placement import Need
from apps.operations.privacy import PrivacyAccount, PrivacyEntry
from apps.operations.queryset import OperationQuerySet
from apps.operations.records import Attempt, Event, LogChunk, MetricPoint, Study
from apps.operations.uses import DatasetUse, ModelUse
from trainops.clock import DatabaseNow
from trainops.kind import KINDS

__all__ = [
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
]

MAX_NAME_LENGTH = 120


class Operation(models.Model):
    """One long job that somebody asked for: what is wanted, how far it is, how it ended."""

    class Stop(models.TextChoices):
        NONE = "", ""
        CANCEL = "cancel", "Cancel: save a checkpoint at the next safe point, then stop"
        KILL = "kill", "Kill: stop now; the work since the last checkpoint is lost"

    id = models.CharField(primary_key=True, max_length=64)
    kind = models.CharField(max_length=16)
    recipe = models.CharField(max_length=64, blank=True)
    name = models.CharField(max_length=MAX_NAME_LENGTH)
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
    takes_slot = models.BooleanField(
        default=True, db_default=True, help_text="Else others do its work."
    )

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
    self_check = models.CharField(
        max_length=16,
        blank=True,
        default="",
        db_default="",
        help_text="The newest result of a self-check: equal, differs or not_loaded.",
    )

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
            models.Index(
                fields=["owner"],
                condition=Q(state__in=["PENDING", "RESUMING", "RUNNING"]),
                name="operation_active_of",
            ),
            models.Index(fields=["self_check"], name="operation_self_check"),
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
            takes_slot=self.takes_slot,
        )

    @property
    def retention(self) -> dict[str, Any]:
        """What apps.checkpoints.services.retain is to keep."""
        keep = self.config["checkpoint"]
        return {
            "keep_last": keep["keep_last"],
            "keep_best": keep["keep_best"],
            "better": self.config.get("mode") or KINDS[self.kind].objective.mode or "min",
        }

    @property
    def uses_ledger(self) -> bool:
        """Whether its job writes to the ledger."""
        return KINDS[self.kind].uses_ledger(self.config)

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


class ClientPart(models.Model):
    """An operation is what one client does in one round of a distributed one, its server.

    The same part of the same model is there once, so a server that asks again finds it.
    """

    operation = models.OneToOneField(
        Operation, models.CASCADE, primary_key=True, related_name="part"
    )
    # A client's operation would stay behind: all are let go first (clients.let_go), or none.
    server = models.ForeignKey(Operation, models.RESTRICT, related_name="parts")
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
