"""What is remembered of operations. Every change of state goes through `OperationQuerySet.move`."""

from typing import TypedDict

from django.conf import settings
from django.db import models

from apps.operations.indexes import CONSTRAINTS, INDEXES
from apps.operations.lifecycle import FINISHED, Reason, State
from apps.operations.models.descriptions import Described
from apps.operations.models.queryset import OperationQuerySet
from apps.operations.models.records import Event, Study
from apps.operations.placement import Need
from trainops import progress
from trainops.clock import DatabaseNow
from trainops.kind import KINDS
from trainops.runtime import monitors
from trainops.runtime.ledger_fields import LedgerFields

MAX_NAME_LENGTH = 120


class Operation(Described):
    """One requested long job: its config, its progress and its outcome."""

    class Stop(models.TextChoices):
        NONE = "", ""
        CANCEL = "cancel", "Cancel: save a checkpoint at the next safe point, then stop"
        KILL = "kill", "Kill: stop immediately; the work since the last checkpoint is lost"

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
    config_given = models.JSONField(help_text="Config as submitted.")
    config = models.JSONField(help_text="Validated config with defaults.")
    config_hash = models.CharField(max_length=64)
    idempotency_key = models.CharField(max_length=120, blank=True)
    request_hash = models.CharField(
        max_length=64, blank=True, help_text="SHA-256 digest of the request with this key."
    )
    priority = models.SmallIntegerField(default=0)
    queue = models.CharField(max_length=64, blank=True, help_text="Required worker label.")
    device = models.CharField(max_length=4, default="auto", help_text="auto, cpu or cuda")
    gpu_memory_bytes = models.PositiveBigIntegerField(default=0, help_text="Required GPU memory.")
    memory_bytes = models.PositiveBigIntegerField(
        default=0, help_text="Required memory of the machine."
    )
    checkpoint_bytes = models.PositiveBigIntegerField(
        default=0, help_text="Size of the last checkpoint."
    )
    takes_slot = models.BooleanField(
        default=True, db_default=True, help_text="Whether it occupies a slot; coordinators do not."
    )
    processes = models.PositiveSmallIntegerField(
        default=1, db_default=1, help_text="Processes of each node; each takes a slot."
    )
    nodes = models.PositiveSmallIntegerField(
        default=1, db_default=1, help_text="Maximum number of workers that compute it at once."
    )
    min_nodes = models.PositiveSmallIntegerField(
        default=1, db_default=1, help_text="Minimum number of workers that compute it at once."
    )

    first_checkpoint_seconds = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Expected seconds from a claim to the first checkpoint, as the latest attempt "
        "measured them; at first the interval of its config.",
    )
    uses_datasets = models.BooleanField(
        default=False, db_default=False, help_text="Whether its config names datasets."
    )

    state = models.CharField(max_length=10, choices=State.choices, default=State.PENDING)
    reason = models.CharField(max_length=24, choices=Reason.choices, blank=True)
    stop_requested = models.CharField(max_length=6, choices=Stop.choices, blank=True)
    stop_requested_at = models.DateTimeField(null=True, blank=True)
    stop_requested_by = models.CharField(max_length=150, blank=True)
    stop_reason = models.CharField(
        max_length=24, choices=Reason.choices, blank=True, default="", db_default=""
    )

    attempt = models.PositiveIntegerField(
        default=0, help_text="Number of the current attempt; the fencing token."
    )
    worker_id = models.CharField(max_length=120, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    not_before = models.DateTimeField(
        null=True, blank=True, help_text="Earliest time of the restart."
    )
    restarts_used = models.PositiveIntegerField(
        default=0, help_text="Restarts since the last progress."
    )
    resume_from = models.CharField(
        max_length=64, blank=True, help_text="Checkpoint chosen for the resume."
    )
    accepts_inexact = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Whether the latest resume was asked for even if it is not exact.",
    )
    hinted_at = models.DateTimeField(null=True, blank=True)
    num_hints = models.PositiveIntegerField(default=0)

    unit = models.CharField(max_length=32, blank=True)
    place = models.CharField(
        max_length=120, blank=True, help_text='Position as text, such as "epoch 3 of 20".'
    )
    step = models.PositiveBigIntegerField(default=0)
    total_steps = models.PositiveBigIntegerField(default=0)
    steps_per_second = models.FloatField(null=True, blank=True)
    progressed_at = models.DateTimeField(null=True, blank=True)
    metrics = models.JSONField(default=dict, blank=True, help_text="Latest value of each metric.")
    extremes = models.JSONField(
        default=dict,
        null=True,
        blank=True,
        help_text="Lowest and highest finite value of each metric; null: not counted yet.",
    )
    values_of_attempt = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Attempt whose latest metrics have rows of their own."
    )
    self_check = models.CharField(
        max_length=16,
        blank=True,
        default="",
        db_default="",
        help_text="Result of the latest self-check: equal, differs or not_loaded.",
    )
    concerns = models.CharField(
        max_length=96,
        blank=True,
        default="",
        db_default="",
        help_text="Further reasons why it needs attention: codes, separated by commas.",
    )

    traceparent = models.CharField(
        max_length=55,
        blank=True,
        default="",
        db_default="",
        help_text="Trace of the request that submitted or last resumed it (W3C Trace Context).",
    )

    created_at = models.DateTimeField(db_default=DatabaseNow())
    queued_at = models.DateTimeField(db_default=DatabaseNow())
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    is_subtask = models.BooleanField(
        default=False, db_default=False, help_text="Whether it computes a part of another one."
    )
    forked_from = models.ForeignKey(
        "self", models.SET_NULL, null=True, blank=True, related_name="forks"
    )

    study = models.ForeignKey(
        Study, models.CASCADE, null=True, blank=True, related_name="operations"
    )
    study_values = models.JSONField(default=dict, blank=True, help_text="Values of this trial.")
    fold = models.PositiveSmallIntegerField(
        default=0, help_text="Fold of a walk-forward analysis, from 1."
    )
    is_test = models.BooleanField(
        default=False, help_text="Whether it is the out-of-sample test of its fold."
    )

    result = models.JSONField(null=True, blank=True)
    error = models.JSONField(null=True, blank=True, help_text="code, message, traceback")

    objects = OperationQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = INDEXES
        constraints = CONSTRAINTS

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
            processes=self.processes,
            nodes=self.nodes,
            min_nodes=self.min_nodes,
            first_checkpoint_seconds=self.first_checkpoint_seconds,
            uses_datasets=self.uses_datasets,
        )

    @property
    def retention(self) -> "RetentionPolicy":
        keep = self.config["checkpoint"]
        return {
            "keep_last": keep["keep_last"],
            "keep_best": keep["keep_best"],
            "better": self.better,
            "further": monitors.further(self.config),
        }

    @property
    def better(self) -> str:  # values of the monitored metric: min or max
        return self.config.get("mode") or KINDS[self.kind].objective.mode or "min"

    @property
    def requires_exact(self) -> bool:
        """Whether an attempt fails rather than resume not exactly."""
        return self.config.get("exact") == "required" and not self.accepts_inexact

    @property
    def uses_ledger(self) -> bool:
        """Whether its job writes to the ledger."""
        return KINDS[self.kind].uses_ledger(self.config)

    @property
    def ledger_fields(self) -> LedgerFields:
        """The fields of its ledger's entries."""
        return KINDS[self.kind].ledger_fields()

    @property
    def percent(self) -> float:
        return progress.percent(self.step, self.total_steps)

    @property
    def eta_seconds(self) -> float | None:
        if self.state != State.RUNNING:
            return None
        return progress.eta_seconds(self.step, self.total_steps, self.steps_per_second)

    @property
    def is_finished(self) -> bool:
        return self.state in FINISHED

    def record(
        self,
        what: str,
        *,
        actor: str,
        note: str = "",
        from_state: str = "",
        reason: str = "",
        attempt: int = -1,
    ) -> None:
        """Write down what happened, by whom and why."""
        Event.objects.create(
            operation_id=self.pk,
            what=what,
            actor=actor,
            note=note,
            from_state=from_state,
            reason=reason,
            attempt=self.attempt if attempt < 0 else attempt,
        )


class RetentionPolicy(TypedDict):
    """What apps.checkpoints.services.retain is to keep."""

    keep_last: int
    keep_best: int
    better: str  # min or max
    further: dict[str, str]  # min or max by further monitored metric
