"""Uploads that continue, as the API shows them, and what their creation may say."""

import re

from rest_framework import serializers

from apps.datasets.models import Upload
from apps.datasets.serializers import ReadingSerializer
from apps.datasets.uploads import services

DIGEST = re.compile(r"(blake3|sha256):[0-9a-f]{64}")
MAX_SIZE = 2**63 - 1  # of a column of the database


class NewUploadSerializer(ReadingSerializer):
    filename = serializers.CharField(max_length=200, help_text="Name of the file.")
    size_bytes = serializers.IntegerField(min_value=0, max_value=MAX_SIZE)
    digest = serializers.CharField(
        max_length=80,
        required=False,
        default="",
        allow_blank=True,
        help_text="Digest of the whole file, verified at the end: blake3:HEX or sha256:HEX.",
    )
    fingerprint = serializers.CharField(
        max_length=200,
        required=False,
        default="",
        allow_blank=True,
        help_text="Text by which the client finds the upload again; the server only stores it.",
    )

    def validate_digest(self, value: str) -> str:
        if value and not DIGEST.fullmatch(value):
            raise serializers.ValidationError(
                f"got {value!r}; allowed: blake3: or sha256: and 64 hexadecimal digits (lower case)"
            )
        return value


class OpenUploadSerializer(serializers.ModelSerializer[Upload]):
    offset = serializers.SerializerMethodField(help_text="Number of bytes received.")
    dataset_id = serializers.CharField(
        read_only=True, allow_null=True, help_text="Dataset of a finished upload; otherwise null."
    )

    class Meta:
        model = Upload
        fields = [
            "id",
            "filename",
            "name",
            "size_bytes",
            "offset",
            "digest",
            "fingerprint",
            "dataset_id",
            "created_at",
            "changed_at",
        ]
        read_only_fields = fields

    def get_offset(self, upload: Upload) -> int:
        return services.offset_of(upload)
