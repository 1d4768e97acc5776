"""Requests and responses of workers over HTTP about their attempts."""

import math
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.operations.attempts.remote_commits import MAX_FILES
from apps.workers.serializers import EndedSerializer
from trainops.http.serializers import StrictSerializer
from trainops.kind import KINDS
from trainops.media.items import TYPES
from trainops.media.limits import MAX_CAPTION, MAX_ITEM_BYTES, MAX_ITEMS, MAX_NAME
from trainops.runtime.checkpoint.manifest import DIRECTORY_NAME, CheckpointType
from trainops.runtime.labels import LABEL_PATTERN, LABEL_RULE

MAX_STEP = 2**63 - 1
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@extend_schema_field({"oneOf": [{"type": "number"}, {"type": "string", "enum": [*NOT_FINITE]}]})
class NumberField(serializers.Field[float, Any, Any, Any]):
    """A number; NaN, Infinity and -Infinity are text, since JSON cannot express them."""

    def to_internal_value(self, data: object) -> float:
        if isinstance(data, str) and data in NOT_FINITE:
            return NOT_FINITE[data]
        if isinstance(data, bool) or not isinstance(data, int | float):
            allowed = ", ".join(NOT_FINITE)
            raise serializers.ValidationError(
                f"got {str(data)[:60]!r}; allowed: a number, {allowed}"
            )
        return float(data)

    def to_representation(self, value: object) -> object:
        return value


class DeviceSerializer(StrictSerializer):
    id = serializers.CharField(max_length=64, help_text="Device id, as in CUDA_VISIBLE_DEVICES.")
    memory_bytes = serializers.IntegerField(min_value=0, max_value=2**60)


class ClaimRequestSerializer(StrictSerializer):
    """The resources that the worker offers to one operation now."""

    kinds = serializers.ListField(
        child=serializers.ChoiceField(choices=list(KINDS)), min_length=1, max_length=32
    )
    labels = serializers.ListField(
        child=serializers.RegexField(LABEL_PATTERN, error_messages={"invalid": LABEL_RULE}),
        required=False,
        default=list,
        max_length=32,
    )
    memory_bytes = serializers.IntegerField(
        required=False, default=0, min_value=0, max_value=2**60, help_text="Memory of the machine."
    )
    disk_bytes = serializers.IntegerField(
        required=False,
        default=0,
        min_value=0,
        max_value=2**60,
        help_text="Free disk space for staging.",
    )
    devices = serializers.ListField(
        child=DeviceSerializer(), required=False, default=list, max_length=64,
        help_text="Free GPUs.",
    )  # fmt: skip
    has_gpus = serializers.BooleanField(
        required=False, default=False, help_text="Whether the machine has GPUs, free or not."
    )


class StoredFileSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    size_bytes = serializers.IntegerField()
    blake3 = serializers.CharField()
    home = serializers.CharField(
        allow_blank=True, help_text="Directory of the earlier checkpoint that contains the file."
    )


class CandidateSerializer(serializers.Serializer[Any]):
    checkpoint_id = serializers.CharField()
    directory = serializers.CharField()
    type = serializers.ChoiceField(choices=[str(each) for each in CheckpointType])
    step = serializers.IntegerField()
    manifest_digest = serializers.CharField(help_text="BLAKE3 digest of manifest.json.")
    files = StoredFileSerializer(many=True)


class InputSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(help_text="Name of the input in the config.")
    type = serializers.ChoiceField(choices=["dataset", "directory", "model"])
    blake3 = serializers.CharField(
        required=False,
        help_text="BLAKE3 digest of the Parquet file: a table, or the manifest of a directory.",
    )
    path = serializers.CharField(
        required=False,
        help_text="Path of the directory, or URL of the prefix, which the worker must reach.",
    )
    changed_ns = serializers.IntegerField(
        required=False, help_text="Newest change time of its files at the registration (ns)."
    )
    checkpoint = CandidateSerializer(
        required=False, help_text="Checkpoint of the model (model only)."
    )


class ClaimedSerializer(serializers.Serializer[Any]):
    operation_id = serializers.CharField()
    attempt = serializers.IntegerField(help_text="Fencing token for all later calls.")
    kind = serializers.CharField()
    config = serializers.DictField()
    config_hash = serializers.CharField()
    requires_exact = serializers.BooleanField(
        help_text="End with the code NOT_EXACT where the resume would not be exact."
    )
    device = serializers.CharField(allow_blank=True, help_text="Assigned GPU; empty: none.")
    lease_seconds = serializers.FloatField(
        help_text="Lease duration; each call for the attempt renews the lease."
    )
    checkpoints = CandidateSerializer(
        many=True, help_text="Checkpoints to start from; use the first that is complete."
    )
    inputs = InputSerializer(many=True)
    accepts_uncertain = serializers.BooleanField(
        required=False,
        help_text="Whether the receipt of `restored` may have `uncertain`; earlier versions do "
        "not send this field, and refuse such a receipt.",
    )
    ledger = serializers.DictField(
        allow_null=True,
        help_text="Ledger, if there is one: `secret` and `entries` "
        '(`{"identity", "step", "values", "is_own"}`).',
    )
    privacy = serializers.DictField(
        allow_null=True, help_text="Deprecated: the ledger in the shape of older workers."
    )


class ClaimAnswerSerializer(serializers.Serializer[Any]):
    claimed = ClaimedSerializer(
        allow_null=True, help_text="Claimed attempt; null: no operation fits, ask again later."
    )


class DirectiveSerializer(serializers.Serializer[Any]):
    directive = serializers.ChoiceField(choices=["proceed", "cancel", "preempt", "kill"])
    reason = serializers.CharField(allow_blank=True)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


class RestoredSerializer(StrictSerializer):
    """Where the attempt starts, once its job is made and its checkpoint is loaded."""

    step = serializers.IntegerField(min_value=0, max_value=MAX_STEP)
    receipt = serializers.DictField(
        help_text='{"step", "checkpoint" (a directory or null), "exact", "items": [{"part", '
        '"restored", "exact", "note"}]}; optional "uncertain": why no later resume is certain '
        "to be exact, by part"
    )
    measured_to = serializers.IntegerField(
        min_value=0, max_value=MAX_STEP, required=False, allow_null=True, default=None,
        help_text="Last step whose points are not measured again; null: `step`. Less than "
        "`step` if the checkpoint was taken before an evaluation.",
    )  # fmt: skip

    def validate_receipt(self, receipt: dict[str, object]) -> dict[str, object]:
        expected = {"step", "checkpoint", "exact", "items"}
        if receipt.keys() - {"uncertain"} != expected or not isinstance(receipt["items"], list):
            raise serializers.ValidationError(f"must have {', '.join(sorted(expected))}")
        uncertain = receipt.get("uncertain", {})
        if not isinstance(uncertain, dict) or not all(map(_is_text, uncertain.values())):
            raise serializers.ValidationError("uncertain: allowed: an object of texts")
        name = receipt["checkpoint"]
        if name is not None and not DIRECTORY_NAME.fullmatch(str(name)):
            problem = f"checkpoint: got {name!r:.100}; allowed: a directory of the claim, or null"
            raise serializers.ValidationError(problem)
        return receipt


class PointSerializer(StrictSerializer):
    step = serializers.IntegerField(min_value=0, max_value=MAX_STEP)
    at = serializers.DateTimeField(help_text="Time by the worker's clock.")
    metrics = serializers.DictField(child=NumberField())


class ProgressSerializer(StrictSerializer):
    step = serializers.IntegerField(min_value=0, max_value=MAX_STEP)
    total_steps = serializers.IntegerField(min_value=0, max_value=MAX_STEP)
    place = serializers.CharField(
        max_length=120, required=False, allow_blank=True, default="", help_text="Position as text."
    )
    points = serializers.ListField(
        child=PointSerializer(), required=False, default=list, max_length=5000
    )
    log = serializers.CharField(
        max_length=2**20, required=False, allow_blank=True, default="", trim_whitespace=False
    )
    steps_per_second = serializers.FloatField(
        required=False, allow_null=True, default=None, min_value=0
    )


class OpenCheckpointSerializer(StrictSerializer):
    type = serializers.ChoiceField(choices=[str(each) for each in CheckpointType])
    step = serializers.IntegerField(min_value=0, max_value=10**12)


class DirectorySerializer(serializers.Serializer[Any]):
    directory = serializers.CharField(
        help_text="Directory to which the files are uploaded before the commit."
    )


class SentFileSerializer(StrictSerializer):
    name = serializers.CharField(max_length=128)
    size_bytes = serializers.IntegerField(min_value=0, max_value=2**60)
    blake3 = serializers.RegexField(r"^[0-9a-f]{64}\Z")
    home = serializers.CharField(
        max_length=64, required=False, allow_blank=True, default="",
        help_text="Committed checkpoint of the operation with the same file; the file is not "
        "uploaded.",
    )  # fmt: skip


class CommitSerializer(StrictSerializer):
    files = serializers.ListField(child=SentFileSerializer(), min_length=1, max_length=MAX_FILES)
    environment = serializers.DictField(
        required=False,
        default=dict,
        help_text="Environment that determines the last bits: torch, device, threads, …",
    )


class CommittedSerializer(DirectiveSerializer):
    checkpoint_id = serializers.CharField()


class DamagedSerializer(StrictSerializer):
    """A checkpoint that the worker received and found damaged."""

    checkpoint_id = serializers.CharField(max_length=64)
    missing = serializers.ListField(
        child=serializers.CharField(max_length=128), required=False, default=list, max_length=100
    )
    altered = serializers.ListField(
        child=serializers.CharField(max_length=128), required=False, default=list, max_length=100
    )


class MediaItemSerializer(StrictSerializer):
    """An item that the recipe logged."""

    step = serializers.IntegerField(min_value=0, max_value=MAX_STEP // 2 - 1)
    at = serializers.DateTimeField(help_text="Time by the worker's clock.")
    is_early = serializers.BooleanField(
        required=False,
        default=False,
        help_text="Whether it was logged before the evaluation with which its step ends.",
    )
    name = serializers.CharField(max_length=MAX_NAME, trim_whitespace=False)
    index = serializers.IntegerField(
        required=False, default=0, min_value=0, max_value=MAX_ITEMS - 1,
        help_text="Place among those that were logged together.",
    )  # fmt: skip
    type = serializers.ChoiceField(choices=TYPES)
    caption = serializers.CharField(
        max_length=MAX_CAPTION, required=False, allow_blank=True, default="",
        trim_whitespace=False,
    )  # fmt: skip
    content = serializers.CharField(
        max_length=4 * MAX_ITEM_BYTES // 3 + 4,
        help_text="PNG, WAV or JSON in base64, by the type.",
    )


class MediaSerializer(StrictSerializer):
    items = serializers.ListField(child=MediaItemSerializer(), min_length=1, max_length=MAX_ITEMS)


class LedgerSerializer(StrictSerializer):
    entries = serializers.ListField(
        child=serializers.DictField(),
        min_length=1,
        max_length=1000,
        help_text='`{"identity", "step", "values"}` each; `values` by the fields of the kind.',
    )


class SpendingSerializer(StrictSerializer):
    entries = serializers.ListField(
        child=serializers.DictField(), min_length=1, max_length=1000,
        help_text="One flat object each: the shape of older workers.",
    )  # fmt: skip


class EndSerializer(EndedSerializer):
    """The outcome of the attempt; repeating it changes nothing."""

    operation_id = None  # type: ignore[assignment] # the address names both
    attempt = None  # type: ignore[assignment]
