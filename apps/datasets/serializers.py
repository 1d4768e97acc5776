"""Datasets as the API shows them, and what an upload may say."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.datasets.models import Dataset
from apps.datasets.tables.options import DELIMITERS, ENCODINGS, KINDS, PICTURES
from trainops.http.parsers import NotUsable, read_json
from trainops.http.serializers import StrictSerializer


class CountSerializer(serializers.Serializer[Any]):
    value = serializers.JSONField(read_only=True)
    count = serializers.IntegerField(read_only=True)


class ColumnSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(read_only=True)
    type = serializers.ChoiceField(choices=(*KINDS, *PICTURES), read_only=True)
    missing = serializers.IntegerField(read_only=True, help_text="How many rows have no value.")
    distinct = serializers.IntegerField(
        read_only=True, allow_null=True, help_text="Distinct values; null beyond 1000."
    )
    min = serializers.JSONField(
        read_only=True, allow_null=True, help_text="Of numbers and dates; else null."
    )
    max = serializers.JSONField(read_only=True, allow_null=True)
    examples = serializers.ListField(child=serializers.JSONField(), read_only=True)
    note = serializers.CharField(read_only=True, help_text="Why the type is what it is.")
    shape = serializers.ListField(
        child=serializers.IntegerField(),
        read_only=True,
        required=False,
        help_text="Of images: height, width, channels; of masks: height, width.",
    )
    counts = serializers.ListField(
        child=CountSerializer(),
        read_only=True,
        required=False,
        help_text="Of labels and clients, up to 100: how many images have each.",
    )


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

    class Meta(DatasetSummarySerializer.Meta):
        fields = [
            *DatasetSummarySerializer.Meta.fields,
            "digest",
            "encoding",
            "delimiter",
            "source_bytes",
            "columns",
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
    num_rows = serializers.IntegerField(read_only=True, help_text="Of the whole table.")


@extend_schema_field({"type": "string", "example": '{"age": "number"}'})
class DeclaredColumnsField(serializers.Field[Any, Any, Any, Any]):
    """A JSON object in a form field: {"column": "type"}."""

    def to_internal_value(self, data: Any) -> dict[str, str]:
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

    def to_representation(self, value: Any) -> Any:
        return value


class UploadSerializer(StrictSerializer):
    file = serializers.FileField(
        max_length=1000,
        allow_empty_file=True,  # so that it is refused as an empty table, with a code
        help_text="CSV (comma, semicolon, tab or bar) or Parquet with a header, or an NPZ of "
        "images with labels, masks or both.",
    )
    name = serializers.CharField(
        max_length=200, required=False, default="", allow_blank=True, help_text="Else the file's."
    )
    columns = DeclaredColumnsField(
        required=False,
        help_text="Types that columns must have, as a JSON object of names and types. "
        f"Types: {', '.join(KINDS)}.",
    )
    encoding = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        max_length=20,
        help_text="Where no byte order mark says it and it is not UTF-8. "
        f"One of: {', '.join(ENCODINGS)}.",
    )
    delimiter = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        trim_whitespace=False,
        max_length=10,
        help_text=f"Found by itself; else one of {' '.join(map(repr, DELIMITERS))}.",
    )
