"""Requests and responses of workers over HTTP about their attempts."""

import math
from typing import Any

from rest_framework import serializers

from apps.operations.attempts.remote_files import MAX_FILES
from apps.workers.serializers import EndedSerializer
from trainops.http.serializers import StrictSerializer
from trainops.kind import KINDS
from trainops.runtime.checkpoint.manifest import DIRECTORY_NAME, CheckpointType
from trainops.runtime.labels import LABEL_PATTERN, LABEL_RULE

MAX_STEP = 2**63 - 1
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class NumberField(serializers.Field[float, Any, Any, Any]):
    """A number; NaN, Infinity and -Infinity are text, since JSON cannot express them."""

    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, str) and data in NOT_FINITE:
            return NOT_FINITE[data]
        if isinstance(data, bool) or not isinstance(data, int | float):
            allowed = ", ".join(NOT_FINITE)
            raise serializers.ValidationError(
                f"got {str(data)[:60]!r}; allowed: a number, {allowed}"
            )
        return float(data)

    def to_representation(self, value: Any) -> Any:
        return value


class DeviceSerializer(StrictSerializer):
    id = serializers.CharField(max_length=64, help_text="As CUDA_VISIBLE_DEVICES takes it.")
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
        required=False, default=0, min_value=0, max_value=2**60, help_text="Of the machine."
    )
    disk_bytes = serializers.IntegerField(
        required=False, default=0, min_value=0, max_value=2**60, help_text="Free, for staging."
    )
    devices = serializers.ListField(
        child=DeviceSerializer(), required=False, default=list, max_length=64,
        help_text="GPUs that are free.",
    )  # fmt: skip
    has_gpus = serializers.BooleanField(
        required=False, default=False, help_text="Whether it has GPUs, free or not."
    )


class FileSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    size_bytes = serializers.IntegerField()
    blake3 = serializers.CharField()
    home = serializers.CharField(
        allow_blank=True, help_text="The directory of the earlier checkpoint that brought it."
    )


class CandidateSerializer(serializers.Serializer[Any]):
    checkpoint_id = serializers.CharField()
    directory = serializers.CharField()
    type = serializers.ChoiceField(choices=[str(each) for each in CheckpointType])
    step = serializers.IntegerField()
    manifest_digest = serializers.CharField(help_text="BLAKE3 of manifest.json.")
    files = FileSerializer(many=True)


class InputSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(help_text="As the config names it.")
    type = serializers.ChoiceField(choices=["dataset", "model"])
    blake3 = serializers.CharField(required=False, help_text="Of a dataset's Parquet file.")
    checkpoint = CandidateSerializer(required=False, help_text="Of a model.")


class ClaimedSerializer(serializers.Serializer[Any]):
    operation_id = serializers.CharField()
    attempt = serializers.IntegerField(help_text="The fencing token of every later call.")
    kind = serializers.CharField()
    config = serializers.DictField()
    config_hash = serializers.CharField()
    device = serializers.CharField(allow_blank=True, help_text="The GPU it may use; empty: none.")
    lease_seconds = serializers.FloatField(help_text="Renewed by every call about the attempt.")
    checkpoints = CandidateSerializer(
        many=True, help_text="To start from; the first that is whole."
    )
    inputs = InputSerializer(many=True)
    privacy = serializers.DictField(allow_null=True, help_text="The ledger, where one is kept.")


class ClaimAnswerSerializer(serializers.Serializer[Any]):
    claimed = ClaimedSerializer(allow_null=True, help_text="null: nothing fits; ask again later.")


class DirectiveSerializer(serializers.Serializer[Any]):
    directive = serializers.ChoiceField(choices=["proceed", "cancel", "preempt", "kill"])
    reason = serializers.CharField(allow_blank=True)


class RestoredSerializer(StrictSerializer):
    """Where the attempt starts, once its job is made and its checkpoint is loaded."""

    step = serializers.IntegerField(min_value=0, max_value=MAX_STEP)
    receipt = serializers.DictField(
        help_text='{"step", "checkpoint" (a directory or null), "exact", "items": [{"part", '
        '"restored", "exact", "note"}]}'
    )
    measured_to = serializers.IntegerField(
        min_value=0, max_value=MAX_STEP, required=False, allow_null=True, default=None,
        help_text="The last step whose points are not measured again; null: `step`. Less than it "
        "where the checkpoint was taken before an evaluation.",
    )  # fmt: skip

    def validate_receipt(self, receipt: dict[str, Any]) -> dict[str, Any]:
        expected = {"step", "checkpoint", "exact", "items"}
        if receipt.keys() != expected or not isinstance(receipt["items"], list):
            raise serializers.ValidationError(f"must have {', '.join(sorted(expected))}")
        name = receipt["checkpoint"]
        if name is not None and not DIRECTORY_NAME.fullmatch(str(name)):
            problem = f"checkpoint: got {name!r:.100}; allowed: a directory of the claim, or null"
            raise serializers.ValidationError(problem)
        return receipt


class PointSerializer(StrictSerializer):
    step = serializers.IntegerField(min_value=0, max_value=MAX_STEP)
    at = serializers.DateTimeField(help_text="By the worker's clock.")
    metrics = serializers.DictField(child=NumberField())


class ProgressSerializer(StrictSerializer):
    step = serializers.IntegerField(min_value=0, max_value=MAX_STEP)
    total_steps = serializers.IntegerField(min_value=0, max_value=MAX_STEP)
    place = serializers.CharField(
        max_length=120, required=False, allow_blank=True, default="", help_text="For people."
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
    directory = serializers.CharField(help_text="Its files are sent to this, then committed.")


class SentFileSerializer(StrictSerializer):
    name = serializers.CharField(max_length=128)
    size_bytes = serializers.IntegerField(min_value=0, max_value=2**60)
    blake3 = serializers.RegexField(r"^[0-9a-f]{64}\Z")
    home = serializers.CharField(
        max_length=64, required=False, allow_blank=True, default="",
        help_text="Not sent: the same as in this committed checkpoint of the operation.",
    )  # fmt: skip


class CommitSerializer(StrictSerializer):
    files = serializers.ListField(child=SentFileSerializer(), min_length=1, max_length=MAX_FILES)
    environment = serializers.DictField(
        required=False, default=dict, help_text="What decides last bits: torch, device, threads, …"
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


class SpendingSerializer(StrictSerializer):
    entries = serializers.ListField(child=serializers.DictField(), min_length=1, max_length=1000)


class EndSerializer(EndedSerializer):
    """The outcome of the attempt; repeating it changes nothing."""

    operation_id = None  # type: ignore[assignment] # the address names both
    attempt = None  # type: ignore[assignment]
