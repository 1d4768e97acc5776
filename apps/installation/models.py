"""What belongs to this installation as a whole, not to any operation, dataset or worker."""

from django.db import models


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
