"""The row that makes an operation a subtask of another."""

from django.db import models

from trainops.clock import DatabaseNow
from trainops.kind import KINDS


class Subtask(models.Model):
    """An operation that computes a part of another, its parent.

    The same subtask exists once, so a parent that requests it again finds it.
    """

    operation = models.OneToOneField(
        "operations.Operation", models.CASCADE, primary_key=True, related_name="subtask"
    )
    # The subtask's operation would stay: all are deleted first (subtasks.services), or none.
    parent = models.ForeignKey("operations.Operation", models.RESTRICT, related_name="subtasks")
    group = models.PositiveBigIntegerField(help_text="Subtasks of one group start together.")
    index = models.PositiveIntegerField(help_text="Order within the group.")
    spec = models.JSONField(help_text="JSON values that the kind interprets.")
    num_steps = models.PositiveIntegerField(help_text="Maximum number of steps.")
    begins_with = models.CharField(max_length=64, help_text="Identity of the initial state.")
    identity = models.CharField(
        max_length=64, help_text="Digest of the spec, the steps and the initial state."
    )
    name = models.CharField(max_length=64, help_text="Display name.")
    given_id = models.CharField(
        max_length=64,
        help_text="Checkpoint of the parent with the initial state; kept until the subtask ends.",
    )
    sent_at = models.DateTimeField(db_default=DatabaseNow())

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["parent", "group", "index", "identity"], name="one_row_per_subtask"
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.group_name}"

    @property
    def group_name(self) -> str:
        """Return the group in the kind's words."""
        return f"{KINDS[self.operation.kind].group} {self.group}"
