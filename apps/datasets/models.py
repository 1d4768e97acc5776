"""Uploaded tables and registered directories: a row here, the bytes in a storage.

An upload that continues is a row, too, until it is finished or expires.
"""

from secrets import token_hex

from django.conf import settings
from django.db import models

DIRECTORY = "directory"


class Dataset(models.Model):
    """A table that was validated once and never changes; its id comes from its content.

    `columns` is a list of {name, type, missing, distinct, min, max, examples, note}; `distinct` is
    null beyond 1000. `preview` holds the first rows as lists, in the order of `columns`. Of
    images it holds small pictures as data URIs; their column has a shape, labels and clients have
    counts.

    Of a registered directory the normalised file is its manifest, a row is a file, `preview` holds
    the first names and sizes, and `layout` says what kind of data it is. A prefix of a bucket is
    stored as a directory whose `root` is s3://BUCKET/PREFIX.
    """

    id = models.CharField(primary_key=True, max_length=19, editable=False)
    digest = models.CharField(
        max_length=64,
        unique=True,
        editable=False,
        help_text="BLAKE3 digest of the normalised file.",
    )
    source_digest = models.CharField(
        max_length=64,
        db_index=True,
        editable=False,
        help_text="BLAKE3 digest of the upload and its reading options.",
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
    format = models.CharField(max_length=10, help_text="csv, parquet, npz, text or directory.")
    encoding = models.CharField(max_length=20, blank=True)
    delimiter = models.CharField(max_length=1, blank=True)
    num_rows = models.PositiveBigIntegerField()
    num_columns = models.PositiveIntegerField()
    columns = models.JSONField()
    preview = models.JSONField()
    source_bytes = models.PositiveBigIntegerField(help_text="Size of the upload.")
    size_bytes = models.PositiveBigIntegerField(help_text="Size of the normalised file.")
    root = models.TextField(blank=True, help_text="Path of a registered directory.")
    changed_ns = models.BigIntegerField(
        null=True, blank=True, help_text="Newest change time (ns) of a registered file."
    )
    layout = models.JSONField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("-created_at", "-id")
        indexes = [models.Index(fields=["-created_at", "-id"], name="datasets_newest")]
        constraints = [
            models.CheckConstraint(
                name="dataset_not_empty",
                condition=models.Q(num_rows__gt=0)
                & (models.Q(num_columns__gt=0) | models.Q(format=DIRECTORY)),
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.id})"

    @property
    def column_names(self) -> list[str]:
        """What each value of a row of `preview` is."""
        if self.format == DIRECTORY:
            return ["name", "size_bytes"]
        return [column["name"] for column in self.columns]


class FurtherUpload(models.Model):
    """A user uploaded or registered what another one had: the dataset is a single row of both.

    Without constraints in the database: processes of versions that do not know this table can
    delete datasets and users. The rows left over then are ignored.
    """

    dataset = models.ForeignKey(
        Dataset, models.CASCADE, related_name="further_uploads", db_constraint=False
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        related_name="further_uploads",
        db_constraint=False,
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["dataset", "user"], name="one_further_upload")
        ]

    def __str__(self) -> str:
        return f"{self.dataset_id} of {self.user_id}"


def new_upload_id() -> str:
    return f"up_{token_hex(8)}"


class Upload(models.Model):
    """A file that arrives in parts; the number of bytes received is the size of its file.

    `fingerprint` is the client's: with name and size it finds the upload to be continued.
    """

    id = models.CharField(primary_key=True, max_length=19, default=new_upload_id, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="uploads"
    )
    filename = models.CharField(max_length=200)
    name = models.CharField(max_length=200, blank=True)
    size_bytes = models.PositiveBigIntegerField()
    digest = models.CharField(max_length=80, blank=True)
    fingerprint = models.CharField(max_length=200, blank=True)
    options = models.JSONField()
    dataset = models.ForeignKey(
        Dataset,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="uploads",
        help_text="The dataset of a finished upload.",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("-created_at", "-id")

    def __str__(self) -> str:
        return f"{self.filename} ({self.id})"
