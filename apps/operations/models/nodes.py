"""The rows by which other workers take part in an attempt."""

from typing import Self

from django.db import models
from django.db.models import F

from apps.operations.lifecycle import State
from trainops.clock import DatabaseNow


class NodeQuerySet(models.QuerySet["Node"]):
    def current(self) -> Self:
        """Those of attempts that still own their operations."""
        return self.filter(operation__state=State.RUNNING, operation__attempt=F("attempt"))

    def pending(self, worker_id: str) -> Self:
        """Those that a worker has not started yet."""
        return self.current().filter(worker_id=worker_id, started_at=None)


class Node(models.Model):
    """A worker that computes an attempt together with the one that claimed it, node 0.

    It takes a slot for each process from the claim on.
    """

    operation = models.ForeignKey("operations.Operation", models.CASCADE, related_name="node_rows")
    attempt = models.PositiveIntegerField()
    number = models.PositiveSmallIntegerField(help_text="From 1.")
    worker_id = models.CharField(max_length=120)
    host = models.CharField(max_length=120, blank=True)
    device = models.CharField(
        max_length=4096, blank=True, help_text="GPUs of its processes, separated by commas."
    )
    token = models.CharField(max_length=64, help_text="Secret of the attempt, hexadecimal.")
    leader = models.CharField(max_length=64, blank=True, help_text="Address of node 0.")
    port = models.PositiveIntegerField(null=True, help_text="Port of node 0; null: not yet.")
    claimed_at = models.DateTimeField(db_default=DatabaseNow())
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    problem = models.TextField(blank=True, help_text="Reason why it ended before its leader.")

    objects = NodeQuerySet.as_manager()

    class Meta:
        ordering = ["number"]
        constraints = [
            models.UniqueConstraint(
                fields=["operation", "attempt", "number"], name="one_row_per_node"
            )
        ]
        indexes = [
            models.Index(
                fields=["worker_id"], condition=models.Q(ended_at=None), name="nodes_of_worker"
            )
        ]

    def __str__(self) -> str:
        return f"node {self.number} of {self.operation_id} attempt {self.attempt}"
