"""Ledgers of operations: rows that are only ever added.

They name operations by id only, so they stay when an operation or its checkpoints are deleted. The
rows of one operation are a hash chain (apps.ledger.chain); the databases refuse to change or delete
one (apps.ledger.guards).
"""

from typing import Any, NoReturn

from django.db import models
from django.db.models import Q

from apps.ledger import chain
from trainops.clock import DatabaseNow

APPEND_ONLY = "the ledger is append-only"


class LedgerAccount(models.Model):
    """The ledger of one operation: its secret, its ancestors and the end of its chain."""

    operation_id = models.CharField(primary_key=True, max_length=64)
    secret = models.CharField(
        max_length=64, help_text="Secret in hexadecimal; never leaves the server."
    )
    ancestors = models.JSONField(
        default=list, help_text="Operations it was forked from, oldest first."
    )
    num_entries = models.PositiveBigIntegerField(
        default=0, help_text="Number of entries in the ledger."
    )
    head = models.CharField(max_length=64, default="", help_text="Digest of the latest entry.")

    def __str__(self) -> str:
        return self.operation_id

    @property
    def beginning(self) -> str:
        """The digest before the first entry."""
        return chain.beginning(self.secret, self.operation_id, self.ancestors)


class AppendOnlyQuerySet(models.QuerySet["LedgerEntry"]):
    """Rows that can be added and read."""

    def update(self, **_: Any) -> NoReturn:
        raise TypeError(APPEND_ONLY)

    def delete(self) -> NoReturn:
        raise TypeError(APPEND_ONLY)


class LedgerEntry(models.Model):
    """One record; see trainops.runtime.ledger.Entry. The kind of the operation has its fields."""

    operation_id = models.CharField(max_length=64)
    attempt = models.PositiveIntegerField()
    number = models.PositiveBigIntegerField(help_text="Position in the ledger, from 1.")
    identity = models.CharField(max_length=64, help_text="Identity of the entry.")
    step = models.PositiveBigIntegerField()
    values = models.JSONField(help_text="Values of the kind's fields.")
    # Copies of two of the values, by which the entries of one subtask are found.
    subtask_group = models.PositiveBigIntegerField(null=True)
    subtask_index = models.PositiveBigIntegerField(null=True)
    digest = models.CharField(
        max_length=64, help_text="Digest of the values and the previous digest."
    )
    recorded_at = models.DateTimeField(db_default=DatabaseNow())

    objects = AppendOnlyQuerySet.as_manager()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["operation_id", "identity"], name="ledger_identity"),
            models.UniqueConstraint(fields=["operation_id", "number"], name="ledger_number"),
        ]
        indexes = [
            models.Index(
                fields=["operation_id", "subtask_group", "subtask_index"],
                condition=Q(subtask_group__isnull=False),
                name="ledger_subtask",
            )
        ]

    def __str__(self) -> str:
        return f"{self.operation_id} entry {self.number}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise TypeError(APPEND_ONLY)
        super().save(*args, **kwargs)

    def delete(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(APPEND_ONLY)
