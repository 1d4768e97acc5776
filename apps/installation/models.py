"""What belongs to this installation as a whole, not to any operation, dataset or worker."""

from django.db import models

from trainops.clock import DatabaseNow


class StorageBinding(models.Model):
    """A storage that this database's files are in, recognised by an identity file in its root."""

    name = models.CharField(primary_key=True, max_length=32, help_text="checkpoints or datasets")
    storage_id = models.CharField(max_length=32, help_text="Id in the storage's identity file.")
    bound_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Time at which the identity file was written; null: not yet.",
    )

    def __str__(self) -> str:
        return f"{self.name}: {self.storage_id}"


class PeriodicJob(models.Model):
    """When a job that runs periodically ran last, whichever process ran it."""

    name = models.CharField(primary_key=True, max_length=32)
    last_run_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.name


class Counter(models.Model):
    """The value of one counter for one set of labels; it only grows."""

    name = models.CharField(max_length=64)
    labels = models.CharField(max_length=255, help_text="JSON object with sorted keys.")
    value = models.FloatField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["name", "labels"], name="one_counter")]

    def __str__(self) -> str:
        return f"{self.name} {self.labels}: {self.value:g}"


class BackupPlace(models.Model):
    """A place that backups were written to; an erasure lists those that it finds there."""

    location = models.CharField(
        primary_key=True, max_length=500, help_text="Directory, or URL of a bucket."
    )
    keep = models.PositiveIntegerField(
        null=True, blank=True, help_text="Number of backups that the last one kept; empty: all."
    )
    last_made_at = models.DateTimeField(db_default=DatabaseNow())

    def __str__(self) -> str:
        return self.location


class Erasure(models.Model):
    """The erasure of one person's data: what is planned, and the certificate in the end."""

    username = models.CharField(max_length=150)
    began_at = models.DateTimeField(db_default=DatabaseNow())
    finished_at = models.DateTimeField(null=True, blank=True)
    plan = models.JSONField(
        default=dict,
        blank=True,
        help_text="Content of the erasure, until it is in the certificate.",
    )
    certificate = models.JSONField(
        null=True, blank=True, help_text="Signed certificate; empty: not finished."
    )

    class Meta:
        ordering = ["-began_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["username"],
                condition=models.Q(finished_at__isnull=True),
                name="one_unfinished_erasure",
            )
        ]

    def __str__(self) -> str:
        return f"erasure of {self.username}"
