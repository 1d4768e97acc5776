"""What users write about an operation and may change at any time; it changes no result."""

from django.db import models


class Described(models.Model):
    """The fields of an operation that `requests.editing` changes, besides name and tags."""

    notes = models.TextField(blank=True, default="", db_default="")
    project = models.CharField(max_length=64, blank=True, default="", db_default="")
    is_favourite = models.BooleanField(default=False, db_default=False)
    archived_at = models.DateTimeField(
        null=True, blank=True, help_text="When it was archived; lists omit it."
    )
    acknowledged_at = models.DateTimeField(
        null=True, blank=True, help_text="When what needs attention was acknowledged."
    )
    acknowledgement = models.CharField(
        max_length=500, blank=True, default="", db_default="", help_text="Note of the user on it."
    )
    revision = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Number of edits; detects concurrent ones."
    )

    class Meta:
        abstract = True
