"""Checkpoints as the API shows them: rows of `values()`, and what describes those rows."""

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from django.db.models.fields.json import KeyTransform
from django.utils import timezone
from rest_framework import serializers

from apps.checkpoints.models import Checkpoint
from trainops.engines import lossless
from trainops.http.serializers import StrictSerializer

# What a list shows of a state. The whole of it, with a history that grows, is read for one only.
SUMMARY = (
    "epoch", "global_step", "train_loss", "val_loss", "train_accuracy", "val_accuracy",
    "learning_rate", "best_val_loss",
)  # fmt: skip
FIELDS = (
    "id", "operation_id", "attempt", "type", "created_at", "step", "state_size_bytes",
    "artifacts_size_bytes", "counted_size_bytes", "metric", "is_best", "pinned", "health",
    "problem", "format_version",
)  # fmt: skip
SECONDS_PER_DAY = 86_400


def rows_of(checkpoints: QuerySet[Checkpoint]) -> QuerySet[Any]:
    """Return the values that `described` works on; the states stay where they are."""
    summary = {f"state_{name}": KeyTransform(name, "state") for name in SUMMARY}
    rows: QuerySet[Any] = checkpoints.values(*FIELDS, **summary)
    return rows


def described(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of `rows_of` as the API shows it."""
    shown = {name: row[name] for name in FIELDS if name not in ("id", "type")}
    summary = {name: lossless.decode(row[f"state_{name}"]) for name in SUMMARY}
    return shown | {
        "checkpoint_id": row["id"],
        "checkpoint_type": row["type"],
        "state_summary": {name: value for name, value in summary.items() if value is not None},
        "age_days": round(
            (timezone.now() - row["created_at"]).total_seconds() / SECONDS_PER_DAY, 4
        ),
    }


def detail(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return one checkpoint with its whole state and its files."""
    row = rows_of(Checkpoint.objects.filter(pk=checkpoint.pk)).get()
    return described(row) | {
        "state": lossless.decode(checkpoint.state),
        "artifacts": checkpoint.manifest,
        "manifest_digest": checkpoint.manifest_digest,
    }


class CheckpointQuery(StrictSerializer):
    operation_id = serializers.CharField(required=False, max_length=64)
    older_than_days = serializers.FloatField(required=False, min_value=0, max_value=36_500)
    type = serializers.ChoiceField(
        choices=Checkpoint.Type.choices,
        required=False,
        error_messages={
            "invalid_choice": "{input!r} is not a type; allowed: "
            + ", ".join(Checkpoint.Type.values)
        },
    )
    health = serializers.ChoiceField(
        choices=Checkpoint.Health.choices,
        required=False,
        error_messages={
            "invalid_choice": "{input!r} is not a health; allowed: "
            + ", ".join(Checkpoint.Health.values)
        },
    )
    pinned = serializers.BooleanField(required=False, allow_null=True, default=None)


class CheckpointSerializer(serializers.Serializer[Any]):
    checkpoint_id = serializers.CharField()
    operation_id = serializers.CharField()
    checkpoint_type = serializers.ChoiceField(choices=Checkpoint.Type.choices)
    attempt = serializers.IntegerField()
    step = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    age_days = serializers.FloatField()
    state_summary = serializers.DictField(help_text="Epoch, losses and so on, where it has them.")
    state_size_bytes = serializers.IntegerField()
    artifacts_size_bytes = serializers.IntegerField()
    counted_size_bytes = serializers.IntegerField(
        help_text="Of the artifacts; a file that older checkpoints have counts with the oldest."
    )
    metric = serializers.FloatField(allow_null=True)
    is_best = serializers.BooleanField()
    pinned = serializers.BooleanField(help_text="Kept for ever.")
    health = serializers.ChoiceField(choices=Checkpoint.Health.choices)
    problem = serializers.CharField(allow_blank=True, help_text="What is missing or altered.")
    format_version = serializers.IntegerField()


class FileSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    size_bytes = serializers.IntegerField()
    blake3 = serializers.CharField()


class CheckpointDetailSerializer(CheckpointSerializer):
    state = serializers.DictField(help_text="The whole JSON state.")
    artifacts = FileSerializer(many=True)
    manifest_digest = serializers.CharField(help_text="BLAKE3 of manifest.json.")


class CleanUpRequestSerializer(StrictSerializer):
    older_than_days = serializers.FloatField(
        required=False,
        allow_null=True,
        default=None,
        min_value=0,
        max_value=36_500,
        help_text="Without it: the installation's CHECKPOINT_MAX_AGE_DAYS.",
    )
    dry_run = serializers.BooleanField(
        required=False, default=False, help_text="Only say what would go."
    )


class CleanUpSerializer(serializers.Serializer[Any]):
    message = serializers.CharField()
    dry_run = serializers.BooleanField()
    num_checkpoints = serializers.IntegerField()
    num_unowned = serializers.IntegerField(help_text="Directories of files that no row owns.")
    freed_bytes = serializers.IntegerField()
