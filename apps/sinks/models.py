"""Which operations are to be written into which sinks, and when."""

from django.db import models

from trainops.clock import DatabaseNow


class SinkWrite(models.Model):
    """One operation in one sink: when its files are to be written next."""

    operation = models.ForeignKey("operations.Operation", models.CASCADE, related_name="sinks")
    sink = models.CharField(max_length=16)
    next_at = models.DateTimeField(
        null=True, db_default=DatabaseNow(), help_text="Time of the next write; null: none is due."
    )
    num_changes = models.PositiveIntegerField(
        default=0, help_text="Changes of its state: one during a write leads to another write."
    )
    num_failures = models.PositiveIntegerField(default=0, help_text="Failed writes in a row.")
    error = models.CharField(max_length=300, blank=True, help_text="Error of the last write.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["operation", "sink"], name="one_write_per_sink")
        ]
        indexes = [models.Index(fields=["sink", "next_at"], name="sink_writes_due")]

    def __str__(self) -> str:
        return f"{self.operation_id} in {self.sink}"
