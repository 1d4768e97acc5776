"""Saved views of the list of operations."""

from django.conf import settings
from django.db import models


class SavedView(models.Model):
    """A query with its columns, order and grouping, under a name of its owner's."""

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="operation_views"
    )
    name = models.CharField(max_length=80)
    query = models.CharField(max_length=1000, blank=True)
    columns = models.JSONField(default=list, blank=True, help_text="Names of additional columns.")
    sort = models.CharField(max_length=80, blank=True, help_text="Empty: newest first.")
    group_by = models.CharField(
        max_length=80,
        blank=True,
        help_text="Field by which operations are grouped; empty: not grouped.",
    )
    is_shared = models.BooleanField(default=False, help_text="Whether every user sees it.")

    class Meta:
        ordering = ["name", "id"]
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="one_view_per_name")]

    def __str__(self) -> str:
        return self.name
