"""Datasets as the API shows them, and what an upload may say."""

import secrets
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.datasets.models import Dataset
from apps.datasets.tables.options import DELIMITERS, ENCODINGS, KINDS, LINES, PICTURES
from trainops.datasets.description import DirectoryVerification
from trainops.datasets.sampling import Sample
from trainops.http.parsers import NotUsable, read_json
from trainops.http.serializers import StrictSerializer

MAX_SEED, NEW_SEEDS = 2**63 - 1, 2**32  # new ones are short enough to be typed


class CountSerializer(serializers.Serializer[Any]):
    value = serializers.JSONField(read_only=True)
    count = serializers.IntegerField(read_only=True)


class ColumnHistogramSerializer(serializers.Serializer[Any]):
    start = serializers.FloatField(read_only=True, help_text="Left edge of the first bin.")
    width = serializers.FloatField(read_only=True, help_text="Width of each bin.")
    counts = serializers.ListField(child=serializers.IntegerField(), read_only=True)


class ColumnSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(read_only=True)
    type = serializers.ChoiceField(choices=(*KINDS, *PICTURES), read_only=True)
    missing = serializers.IntegerField(read_only=True, help_text="Number of rows without a value.")
    distinct = serializers.IntegerField(
        read_only=True, allow_null=True, help_text="Number of distinct values; null above 1000."
    )
    min = serializers.JSONField(
        read_only=True, allow_null=True, help_text="Minimum of numbers and dates; otherwise null."
    )
    max = serializers.JSONField(read_only=True, allow_null=True)
    examples = serializers.ListField(child=serializers.JSONField(), read_only=True)
    note = serializers.CharField(read_only=True, help_text="Reason for the type.")
    shape = serializers.ListField(
        child=serializers.IntegerField(),
        read_only=True,
        required=False,
        help_text="Height, width and channels of images; height and width of masks.",
    )
    counts = serializers.ListField(
        child=CountSerializer(),
        read_only=True,
        required=False,
        help_text="Number of images per label or client, up to 100.",
    )
    histogram = ColumnHistogramSerializer(
        read_only=True,
        required=False,
        help_text="Distribution of numbers that differ; tables of earlier versions have none.",
    )


class ClassCountSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(read_only=True)
    count = serializers.IntegerField(read_only=True, help_text="Number of files.")


class ColumnTypeSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(read_only=True)
    type = serializers.CharField(read_only=True)


class LayoutSerializer(serializers.Serializer[Any]):
    layout = serializers.CharField(read_only=True, help_text="Kind of data, or files.")
    title = serializers.CharField(read_only=True, help_text="The layout, for people.")
    num_files = serializers.IntegerField(read_only=True)
    num_bytes = serializers.IntegerField(read_only=True)
    num_examples = serializers.IntegerField(
        read_only=True, allow_null=True, help_text="Null where the headers do not tell it."
    )
    classes = ClassCountSerializer(many=True, read_only=True)
    columns = ColumnTypeSerializer(many=True, read_only=True)


class DatasetSummarySerializer(serializers.ModelSerializer[Dataset]):
    """A row of the list; without the columns, which may be many."""

    owner = serializers.CharField(
        source="owner.username", read_only=True, allow_null=True, default=None
    )

    class Meta:
        model = Dataset
        fields = [
            "id",
            "name",
            "filename",
            "owner",
            "format",
            "num_rows",
            "num_columns",
            "size_bytes",
            "created_at",
        ]
        read_only_fields = fields


class DatasetSerializer(DatasetSummarySerializer):
    columns = serializers.SerializerMethodField()
    path = serializers.CharField(
        source="root",
        read_only=True,
        help_text="Path of a directory or address of a prefix; empty for uploads.",
    )
    layout = LayoutSerializer(
        read_only=True,
        allow_null=True,
        help_text="Content of a directory or prefix; null for uploads.",
    )

    class Meta(DatasetSummarySerializer.Meta):
        fields = [
            *DatasetSummarySerializer.Meta.fields,
            "digest",
            "encoding",
            "delimiter",
            "source_bytes",
            "columns",
            "path",
            "layout",
        ]
        read_only_fields = fields

    @extend_schema_field(ColumnSerializer(many=True))
    def get_columns(self, dataset: Dataset) -> Any:
        return dataset.columns  # described once, at the upload; JSON already


class PreviewSerializer(serializers.Serializer[Any]):
    columns = serializers.ListField(child=serializers.CharField(), read_only=True)
    rows = serializers.ListField(
        child=serializers.ListField(child=serializers.JSONField(allow_null=True)), read_only=True
    )
    num_rows = serializers.IntegerField(read_only=True, help_text="Number of rows of the table.")


@extend_schema_field({"type": "string", "example": '{"age": "number"}'})
class DeclaredColumnsField(serializers.Field[Any, Any, Any, Any]):
    """A JSON object in a form field: {"column": "type"}."""

    def to_internal_value(self, data: object) -> dict[str, str]:
        try:
            value = read_json(data) if isinstance(data, str) else data
        except NotUsable:
            value = None
        if isinstance(value, dict) and all(isinstance(kind, str) for kind in value.values()):
            return {str(name): kind for name, kind in value.items()}
        raise serializers.ValidationError(
            f"{str(data)[:60]!r} is not a JSON object of column names and types; "
            f"allowed types: {', '.join(KINDS)}"
        )

    def to_representation(self, value: object) -> object:
        return value


class ReadingSerializer(StrictSerializer):
    """How a file is called and read."""

    name = serializers.CharField(
        max_length=200,
        required=False,
        default="",
        allow_blank=True,
        help_text="Name; by default the file's name.",
    )
    columns = DeclaredColumnsField(
        required=False,
        help_text="Required column types, as a JSON object of names and types. "
        f"Types: {', '.join(KINDS)}.",
    )
    encoding = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        max_length=20,
        help_text="Encoding; by default the byte order mark's, else UTF-8. "
        f"One of: {', '.join(ENCODINGS)}.",
    )
    delimiter = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        trim_whitespace=False,
        max_length=10,
        help_text=f"Delimiter; detected by default. One of {' '.join(map(repr, DELIMITERS))}, or "
        f"{LINES!r} for text without a header: each line is a value of the column `text`.",
    )


class UploadSerializer(ReadingSerializer):
    file = serializers.FileField(
        max_length=1000,
        allow_empty_file=True,  # so that it is refused as an empty table, with a code
        help_text="CSV (comma, semicolon, tab or vertical bar) or Parquet with a header, or "
        "NPZ with images and labels, masks or both; text with the delimiter of lines.",
    )


class DirectorySerializer(StrictSerializer):
    path = serializers.CharField(
        max_length=4000,
        trim_whitespace=False,
        help_text="Absolute path of a directory that the server and all workers reach, or "
        "s3://BUCKET/PREFIX.",
    )
    name = serializers.CharField(
        max_length=200,
        required=False,
        default="",
        allow_blank=True,
        help_text="Name; by default the directory's name.",
    )


class SampleSerializer(StrictSerializer):
    """Which files a verification reads; none of the fields: all files."""

    sample = serializers.IntegerField(
        min_value=1, required=False, help_text="Number of files whose content is compared."
    )
    fraction = serializers.FloatField(
        required=False,
        help_text="Instead: fraction of the files, above 0 and at most 1.",
    )
    seed = serializers.IntegerField(
        min_value=0,
        max_value=MAX_SEED,
        required=False,
        help_text="Seed that draws these files; by default a new one, which the response shows.",
    )

    def validate_fraction(self, value: float) -> float:
        if not 0 < value <= 1:
            raise serializers.ValidationError(f"got {value}; allowed: above 0 and at most 1")
        return value

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if {"sample", "fraction"} <= attrs.keys():
            problem = "got sample and fraction; allowed: one of them"
            raise serializers.ValidationError({"fraction": problem})
        if attrs.keys() == {"seed"}:
            problem = "got a seed alone; allowed: with sample or fraction"
            raise serializers.ValidationError({"seed": problem})
        return attrs

    def to_sample(self) -> Sample | None:
        """Return what was validated; None: all files."""
        given = self.validated_data
        if not given:
            return None
        seed = given.get("seed", secrets.randbelow(NEW_SEEDS))
        return Sample(seed, given.get("sample"), given.get("fraction", 1.0))


class VerificationSerializer(serializers.Serializer[Any]):
    is_unchanged = serializers.SerializerMethodField(help_text="Whether no difference was found.")
    problems = serializers.ListField(
        child=serializers.CharField(),
        read_only=True,
        help_text="Differences from what was registered, up to 100.",
    )
    num_files = serializers.IntegerField(read_only=True, help_text="Registered files.")
    num_files_read = serializers.IntegerField(
        read_only=True, help_text="Files whose content was compared."
    )
    num_bytes = serializers.IntegerField(read_only=True, help_text="Registered bytes.")
    num_bytes_read = serializers.IntegerField(read_only=True, help_text="Bytes compared.")
    seed = serializers.IntegerField(
        read_only=True, allow_null=True, help_text="Seed that drew the sample; null: all files."
    )

    def get_is_unchanged(self, found: DirectoryVerification) -> bool:
        return not found["problems"]
