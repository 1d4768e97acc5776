"""The row of a checkpoint: the moment it exists. Its bytes are in the checkpoint storage."""

from pathlib import Path

from django.db import models

from trainops.clock import DatabaseNow
from trainops.runtime import monitors
from trainops.runtime.errors import CheckpointCorrupted

LATEST, BEST = "latest", "best"  # what stands for a checkpoint's id


class CheckpointQuerySet(models.QuerySet["Checkpoint"]):
    def named(self, operation_id: str, reference: str) -> "CheckpointQuerySet":
        """Return an operation's checkpoint by its id, or as `latest` (newest healthy) or `best`.

        `best:METRIC` is the best by one of several monitored metrics.
        """
        mine = self.filter(operation_id=operation_id)
        if reference == LATEST:
            newest = mine.healthy().newest_first().values("pk")[:1]
            return mine.filter(pk__in=list(newest.values_list("pk", flat=True)))
        if reference.startswith(f"{BEST}:"):
            return mine.best_by(reference.partition(":")[2])
        return mine.filter(is_best=True) if reference == BEST else mine.filter(pk=reference)

    def best_by(self, metric: str) -> "CheckpointQuerySet":
        """Return the best by a monitored metric; one with a slash may have _ in its place."""
        part = monitors.part_of(metric)
        first = self.filter(is_best=True).values_list("pk", "operation__config__monitor")
        further = self.exclude(best_of=[]).values_list("pk", "best_of")
        names = [*((pk, [each]) for pk, each in first if each), *further]
        found = [pk for pk, each in names if part in map(monitors.part_of, each)]
        return self.filter(pk__in=found)

    def healthy(self) -> "CheckpointQuerySet":
        return self.filter(health=Checkpoint.Health.HEALTHY)

    def usable(self) -> "CheckpointQuerySet":
        """Those that a resume may try: what was missing once may be there again."""
        return self.exclude(health=Checkpoint.Health.CORRUPTED)

    def spared(self, *, is_spared: bool = True) -> "CheckpointQuerySet":
        """Results and pinned ones, which only a call that names them deletes; or all others."""
        spared = models.Q(type=Checkpoint.Type.FINAL) | models.Q(pinned=True)
        return self.filter(spared if is_spared else ~spared)

    def newest_first(self) -> "CheckpointQuerySet":
        """What a resume tries, in this order.

        By attempt before position: a person who resumes from an older checkpoint leaves the
        branch beyond it, however far that had come.
        """
        return self.order_by("-attempt", "-step", "-created_at")


class Checkpoint(models.Model):
    """The state of an operation at a safe point, committed."""

    class Type(models.TextChoices):
        PERIODIC = "periodic"
        CANCELLATION = "cancellation"
        FAILURE = "failure"
        SHUTDOWN = "shutdown"
        FINAL = "final"

    class Health(models.TextChoices):
        HEALTHY = "healthy"
        UNAVAILABLE = "unavailable", "unavailable: files were missing at the last check"
        CORRUPTED = "corrupted", "corrupted: the content differs from what was saved"

    id = models.CharField(primary_key=True, max_length=64)
    operation = models.ForeignKey(
        "operations.Operation", models.CASCADE, related_name="checkpoints"
    )
    attempt = models.PositiveIntegerField()
    type = models.CharField(max_length=12, choices=Type.choices)
    created_at = models.DateTimeField(db_default=DatabaseNow())
    step = models.PositiveBigIntegerField()
    state = models.JSONField(help_text="Small queryable state, encoded losslessly.")
    artifacts_path = models.CharField(
        max_length=255, help_text="Directory in the checkpoint storage."
    )
    manifest = models.JSONField(help_text="name, size_bytes, blake3 and home of each file")
    manifest_digest = models.CharField(max_length=64)
    state_size_bytes = models.PositiveBigIntegerField()
    artifacts_size_bytes = models.PositiveBigIntegerField()
    counted_size_bytes = models.PositiveBigIntegerField(
        default=0,
        help_text="Size of the artifacts; a shared file counts with the oldest checkpoint.",
    )
    metric = models.FloatField(null=True, blank=True)
    is_best = models.BooleanField(default=False)
    best_of = models.JSONField(
        default=list,
        blank=True,
        help_text="Further monitored metrics by which it is the best checkpoint.",
    )
    pinned = models.BooleanField(default=False)
    health = models.CharField(max_length=12, choices=Health.choices, default=Health.HEALTHY)
    problem = models.TextField(blank=True, help_text="Missing or altered files.")
    missing_artifacts = models.JSONField(default=list, blank=True)
    altered_artifacts = models.JSONField(default=list, blank=True)
    format_version = models.PositiveIntegerField(default=1)
    signature = models.CharField(
        max_length=200,
        blank=True,
        default="",
        db_default="",
        editable=False,
        help_text="Public key and signature of its manifest and place; empty: not signed.",
    )

    objects = CheckpointQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["operation", "-attempt", "-step"], name="checkpoint_newest"),
            models.Index(fields=["-created_at", "-id"], name="checkpoint_age"),
        ]

    def __str__(self) -> str:
        return f"{self.type} checkpoint at step {self.step}"

    @property
    def damage(self) -> CheckpointCorrupted:
        """What was written down of its missing and altered files."""
        return CheckpointCorrupted(
            Path(self.artifacts_path),
            missing=self.missing_artifacts,
            altered=self.altered_artifacts,
            reason="" if self.missing_artifacts or self.altered_artifacts else self.problem,
        )


class UnownedCheckpoint(models.Model):
    """A directory in the storage that no row owns (any more), until its files are gone.

    A whole checkpoint that was found is deleted some days later. What was deleted on purpose goes
    at once, and this is what the clean-up knows it by, should the storage not answer just then.
    """

    artifacts_path = models.CharField(primary_key=True, max_length=255)
    is_deleted = models.BooleanField(
        default=False, help_text="Deleted on purpose; otherwise found without a database row."
    )
    found_at = models.DateTimeField(db_default=DatabaseNow())

    def __str__(self) -> str:
        return self.artifacts_path


class SigningKey(models.Model):
    """A key whose signatures of checkpoints are accepted; see `apps.checkpoints.signing_keys`."""

    MAX_NAME = 100

    public_key = models.CharField(
        primary_key=True, max_length=64, help_text="Ed25519, in hexadecimal."
    )
    name = models.CharField(max_length=MAX_NAME)
    endorsement = models.CharField(
        max_length=200,
        blank=True,
        default="",
        editable=False,
        help_text="Signature of this row by the key of this installation.",
    )
    added_at = models.DateTimeField(db_default=DatabaseNow())

    def __str__(self) -> str:
        return f"{self.name} ({self.public_key})"
