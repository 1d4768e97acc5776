"""Checkpoints as the API shows them: rows of `values()`, and what describes those rows."""

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from django.db.models.fields.json import KeyTransform
from django.utils import timezone
from rest_framework import serializers

from apps.checkpoints.models import Checkpoint
from apps.checkpoints.signatures import SignatureChecks, Standing
from trainops import progress
from trainops.http.serializers import StrictSerializer
from trainops.kind import KINDS
from trainops.runtime import lossless

# What a list reads of a state. The whole of it, with a history that grows, is read for one only.
READ = tuple(sorted({name for engine in KINDS.values() for name in engine.summary_read}))
OF_OPERATION = ("operation__kind", "operation__unit", "operation__total_steps")
FIELDS = (
    "id", "operation_id", "attempt", "type", "created_at", "step", "state_size_bytes",
    "artifacts_size_bytes", "counted_size_bytes", "metric", "is_best", "best_of", "pinned",
    "health", "problem", "missing_artifacts", "altered_artifacts", "format_version",
)  # fmt: skip
SIGNED = ("artifacts_path", "manifest_digest", "signature")
SECONDS_PER_DAY = 86_400


def rows_of(checkpoints: QuerySet[Checkpoint], *more: str) -> QuerySet[Any]:
    """Return the values that `described` works on; the states stay where they are.

    `more`: names of further columns.
    """
    read = {f"state_{name}": KeyTransform(name, "state") for name in READ}
    rows: QuerySet[Any] = checkpoints.values(*FIELDS, *SIGNED, *OF_OPERATION, *more, **read)
    return rows


def described(row: Mapping[str, Any], checks: SignatureChecks | None = None) -> dict[str, object]:
    """Return a row of `rows_of` as the API shows it; rows of one list share the `checks`."""
    shown = {name: row[name] for name in FIELDS if name not in ("id", "type")}
    engine, total = KINDS[row["operation__kind"]], row["operation__total_steps"]
    read = {name: lossless.decode(row[f"state_{name}"]) for name in READ}
    known = {name: value for name, value in read.items() if value is not None}
    percent = progress.percent(row["step"], total)
    signature = (checks or SignatureChecks()).check(*(row[name] for name in SIGNED))
    return shown | {
        "signature": signature.standing,
        "signed_by": signature.name or signature.key,
        "checkpoint_id": row["id"],
        "checkpoint_type": row["type"],
        "unit": row["operation__unit"],
        "place": engine.position(known, row["step"]).text,
        "progress_percent": percent,
        "state_summary": {
            **{name: known[name] for name in engine.summary if name in known},
            "progress_percent": percent,
        },
        "age_days": round(
            (timezone.now() - row["created_at"]).total_seconds() / SECONDS_PER_DAY, 4
        ),
    }


def detail(checkpoint: Checkpoint) -> dict[str, object]:
    """Return one checkpoint with its whole state and its files."""
    row = rows_of(Checkpoint.objects.filter(pk=checkpoint.pk)).get()
    return described(row) | {
        "state": lossless.decode(checkpoint.state),
        "artifacts": checkpoint.manifest,
        "manifest_digest": checkpoint.manifest_digest,
    }


class CheckpointQuery(StrictSerializer):
    operation_id = serializers.CharField(required=False, max_length=64)
    operation = serializers.CharField(
        required=False,
        max_length=200,
        help_text="Beginning of the operation's id, or part of its name.",
    )
    kind = serializers.ChoiceField(
        choices=[(each.name, each.label) for each in KINDS.values()], required=False
    )
    finished = serializers.BooleanField(
        required=False,
        allow_null=True,
        default=None,
        help_text="Whether the operation has ended. Checkpoints of others cannot be deleted.",
    )
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
    unit = serializers.CharField(allow_blank=True, help_text="Name of one step.")
    place = serializers.CharField(help_text='Position as text, such as "epoch 29" or "bar 7000".')
    progress_percent = serializers.FloatField(
        help_text="Completed percentage of the operation's steps."
    )
    state_summary = serializers.DictField(
        help_text="Counters and measures of the kind, if the state has them (epoch, losses; "
        "bar_index, cash; round; episode), and progress_percent."
    )
    state_size_bytes = serializers.IntegerField()
    artifacts_size_bytes = serializers.IntegerField()
    counted_size_bytes = serializers.IntegerField(
        help_text="Size of the artifacts; a shared file counts with the oldest checkpoint."
    )
    metric = serializers.FloatField(allow_null=True)
    is_best = serializers.BooleanField(help_text="Whether it is the best by `monitor`.")
    best_of = serializers.ListField(
        child=serializers.CharField(),
        help_text="Further monitored metrics (`monitors`) by which it is the best.",
    )
    pinned = serializers.BooleanField(help_text="Whether the checkpoint is kept forever.")
    health = serializers.ChoiceField(choices=Checkpoint.Health.choices)
    problem = serializers.CharField(allow_blank=True, help_text="Missing or altered files.")
    missing_artifacts = serializers.ListField(child=serializers.CharField())
    altered_artifacts = serializers.ListField(child=serializers.CharField())
    format_version = serializers.IntegerField()
    signature = serializers.ChoiceField(
        choices=[(each.value, each.value) for each in Standing],
        help_text="own: of this installation; trusted: of an accepted key; unknown: of another "
        "key; unsigned; invalid: it does not match.",
    )
    signed_by = serializers.CharField(
        allow_blank=True, help_text="Name of the key that signed it, or an unknown key."
    )


class FileSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    size_bytes = serializers.IntegerField()
    blake3 = serializers.CharField()


class CheckpointDetailSerializer(CheckpointSerializer):
    state = serializers.DictField(help_text="Complete JSON state.")
    artifacts = FileSerializer(many=True)
    manifest_digest = serializers.CharField(help_text="BLAKE3 of manifest.json.")


class CleanUpRequestSerializer(StrictSerializer):
    older_than_days = serializers.FloatField(
        required=False,
        allow_null=True,
        default=None,
        min_value=0,
        max_value=36_500,
        help_text="Age in days; by default TRAINOPS_CHECKPOINT_MAX_AGE_DAYS.",
    )
    dry_run = serializers.BooleanField(
        required=False, default=False, help_text="Report what would be deleted, and delete nothing."
    )
    empty_trash = serializers.BooleanField(
        required=False,
        default=False,
        help_text="Delete complete checkpoints without a database row now, without the delay.",
    )


class CleanUpSerializer(serializers.Serializer[Any]):
    message = serializers.CharField()
    dry_run = serializers.BooleanField()
    num_checkpoints = serializers.IntegerField()
    num_unowned = serializers.IntegerField(
        help_text="Number of deleted directories without a database row."
    )
    num_trashed = serializers.IntegerField(
        help_text="Number of complete checkpoints without a database row; deleted after "
        "TRAINOPS_TRASH_DAYS."
    )
    freed_bytes = serializers.IntegerField()
