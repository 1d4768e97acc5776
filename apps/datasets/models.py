"""Uploaded tables: a row here, the bytes in a storage."""

from django.conf import settings
from django.db import models


class Dataset(models.Model):
    """A table that was validated once and never changes; its id comes from its content.

    `columns` is a list of {name, type, missing, distinct, min, max, examples, note}; `distinct` is
    null beyond 1000. `preview` holds the first rows as lists, in the order of `columns`. Of
    images it holds small pictures as data URIs; their column has a shape, labels and clients have
    counts.
    """

    id = models.CharField(primary_key=True, max_length=19, editable=False)
    digest = models.CharField(
        max_length=64, unique=True, editable=False, help_text="BLAKE3 of the normalised file."
    )
    source_digest = models.CharField(
        max_length=64,
        db_index=True,
        editable=False,
        help_text="BLAKE3 of what was uploaded and how it was to be read.",
    )
    name = models.CharField(max_length=200)
    filename = models.CharField(max_length=200, blank=True)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="datasets",
    )
    format = models.CharField(max_length=10, help_text="What was uploaded: csv, parquet or npz.")
    encoding = models.CharField(max_length=20, blank=True)
    delimiter = models.CharField(max_length=1, blank=True)
    num_rows = models.PositiveBigIntegerField()
    num_columns = models.PositiveIntegerField()
    columns = models.JSONField()
    preview = models.JSONField()
    source_bytes = models.PositiveBigIntegerField(help_text="Size of what was uploaded.")
    size_bytes = models.PositiveBigIntegerField(help_text="Size of the normalised file.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("-created_at", "-id")
        indexes = [models.Index(fields=["-created_at", "-id"], name="datasets_newest")]
        constraints = [
            models.CheckConstraint(
                name="dataset_not_empty", condition=models.Q(num_rows__gt=0, num_columns__gt=0)
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"
