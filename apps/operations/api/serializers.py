"""What the API takes in, strictly, and the description of what it shows (see rows.py)."""

from typing import Any

from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers

from apps.operations.attention import Attention
from apps.operations.lifecycle import Reason, State
from apps.operations.requests.access import Action
from apps.operations.requests.projects import MAX_PROJECT
from apps.operations.scheduling.blocking import BlockingReason
from trainops.http.serializers import StrictSerializer
from trainops.runtime.labels import LABEL_PATTERN, LABEL_RULE


class SubmissionSerializer(StrictSerializer):
    """What a person wants; `config` is validated by its kind (see /api/v1/kinds)."""

    kind = serializers.CharField(max_length=16)
    config = serializers.DictField(help_text="Config, as defined by the JSON Schema of the kind.")
    name = serializers.CharField(
        max_length=120, required=False, allow_blank=True, default="", help_text="Text for display."
    )
    tags = serializers.ListField(
        child=serializers.CharField(max_length=64), max_length=20, required=False, default=list
    )
    priority = serializers.IntegerField(
        min_value=-100,
        max_value=100,
        required=False,
        default=0,
        help_text="Priority; higher values run first.",
    )
    queue = serializers.RegexField(
        LABEL_PATTERN,
        max_length=64,
        required=False,
        allow_blank=True,
        default="",
        help_text="Required worker label, such as `a100`; by default any worker.",
        error_messages={"invalid": LABEL_RULE},
    )
    project = serializers.CharField(
        max_length=MAX_PROJECT, required=False, allow_blank=True, default="",
        help_text="Project, whose share limits the operation too; by default none.",
    )  # fmt: skip


class EditSerializer(StrictSerializer):
    """What is to change; fields that are left out stay."""

    name = serializers.CharField(max_length=120, required=False)
    tags = serializers.ListField(
        child=serializers.CharField(max_length=64), max_length=20, required=False
    )
    notes = serializers.CharField(
        max_length=10_000, required=False, allow_blank=True, trim_whitespace=False
    )
    project = serializers.CharField(max_length=MAX_PROJECT, required=False, allow_blank=True)
    is_favourite = serializers.BooleanField(required=False)
    archived = serializers.BooleanField(required=False, help_text="Lists omit archived ones.")
    acknowledged = serializers.BooleanField(
        required=False, help_text="Whether it no longer needs attention; until it is resumed."
    )
    acknowledgement = serializers.CharField(
        max_length=500,
        required=False,
        allow_blank=True,
        help_text="Note on it, such as the cause; only where it is acknowledged.",
    )
    revision = serializers.IntegerField(
        min_value=0,
        max_value=2**31 - 1,
        required=False,
        help_text="`revision` of the operation as last read; required with `name`, `tags`, "
        "`notes` and `project`. 409 `EDIT_CONFLICT` if it was edited since.",
    )


class ResumeRequestSerializer(StrictSerializer):
    checkpoint_id = serializers.CharField(
        max_length=200,
        required=False,
        allow_blank=True,
        default="",
        help_text="Checkpoint id; by default the latest healthy checkpoint.",
    )
    accept_inexact = serializers.BooleanField(
        required=False,
        default=False,
        help_text="Resume even if that is not exact: files of the recipe were changed, or the "
        "config requires `exact`.",
    )


class ForkSerializer(StrictSerializer):
    """What is to differ from the operation that it is forked from."""

    accept_inexact = serializers.BooleanField(
        required=False,
        default=False,
        help_text="Submit even if that is not exact, because files of the recipe were changed.",
    )

    checkpoint_id = serializers.CharField(
        max_length=200,
        required=False,
        allow_blank=True,
        default="",
        help_text="Checkpoint id; by default the latest healthy checkpoint, including the result.",
    )
    config = serializers.DictField(
        required=False, default=dict, help_text="Config fields to override, by name."
    )
    name = SubmissionSerializer().fields["name"]
    tags = SubmissionSerializer().fields["tags"]
    priority = serializers.IntegerField(
        min_value=-100, max_value=100, required=False, allow_null=True, default=None,
        help_text="Priority; by default that of the parent operation.",
    )  # fmt: skip
    project = serializers.CharField(
        max_length=MAX_PROJECT, required=False, allow_blank=True, allow_null=True, default=None,
        help_text="Project; by default that of the parent operation. Empty: none.",
    )  # fmt: skip


@extend_schema_serializer(deprecate_fields=["id", "state"])
class AttentionSerializer(serializers.Serializer[Any]):
    """One reason why an operation needs attention."""

    code = serializers.ChoiceField(choices=Attention.values)
    message = serializers.CharField()
    next_step = serializers.CharField()


class LiveOperationSerializer(serializers.Serializer[Any]):
    """How far it is, and what can be done."""

    operation_id = serializers.CharField()
    status = serializers.ChoiceField(choices=State.choices)
    id = serializers.CharField(help_text="Deprecated alias of `operation_id`.")
    state = serializers.ChoiceField(
        choices=State.choices, help_text="Deprecated alias of `status`."
    )
    reason = serializers.ChoiceField(choices=Reason.choices[1:], allow_blank=True)
    stop_requested = serializers.ChoiceField(choices=["cancel", "kill"], allow_blank=True)
    attempt = serializers.IntegerField(help_text="Number of attempts so far.")
    worker_id = serializers.CharField(allow_blank=True)
    not_before = serializers.DateTimeField(
        allow_null=True, help_text="Earliest time of the restart."
    )
    unit = serializers.CharField(allow_blank=True, help_text="Name of one step.")
    place = serializers.CharField(
        allow_blank=True, help_text='Position as text, such as "3 of 20 epochs".'
    )
    step = serializers.IntegerField()
    total_steps = serializers.IntegerField()
    percent = serializers.FloatField()
    steps_per_second = serializers.FloatField(allow_null=True)
    eta_seconds = serializers.FloatField(allow_null=True)
    metrics = serializers.DictField(
        help_text="Latest value of each metric; text if it is not finite."
    )
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    progressed_at = serializers.DateTimeField(allow_null=True)
    owner = serializers.CharField(allow_null=True)
    part_of = serializers.CharField(
        allow_null=True, help_text="Operation of which this is a subtask."
    )
    self_check = serializers.CharField(
        allow_blank=True,
        help_text="Result of the latest self-check: `equal`, `differs` or `not_loaded`.",
    )
    acknowledged_at = serializers.DateTimeField(
        allow_null=True, help_text="When what needs attention was acknowledged."
    )
    needs_attention = serializers.BooleanField(
        help_text="Whether `attention` has a reason and was not acknowledged."
    )
    attention = AttentionSerializer(
        many=True, help_text="Why it needs attention, acknowledged or not."
    )
    is_resumable = serializers.BooleanField(
        help_text="Whether it ended early with a healthy checkpoint."
    )
    allowed_actions = serializers.ListField(
        child=serializers.ChoiceField(choices=[each.value for each in Action]),
        help_text="Actions that the caller may take now.",
    )


class WaitingForSerializer(serializers.Serializer[Any]):
    code = serializers.ChoiceField(choices=[each.value for each in BlockingReason])
    message = serializers.CharField(help_text="Text for display.")


@extend_schema_serializer(deprecate_fields=["id", "state"])
class OperationSerializer(LiveOperationSerializer):
    """One operation, as lists show it."""

    kind = serializers.CharField()
    recipe = serializers.CharField(allow_blank=True)
    name = serializers.CharField()
    tags = serializers.ListField(child=serializers.CharField())
    priority = serializers.IntegerField()
    queue = serializers.CharField(allow_blank=True, help_text="Required worker label.")
    waiting_for = WaitingForSerializer(
        allow_null=True, help_text="Blocking reason; null if it does not wait."
    )
    restarts_used = serializers.IntegerField(
        help_text="Number of restarts since the last progress."
    )
    project = serializers.CharField(allow_blank=True)
    is_favourite = serializers.BooleanField()
    archived_at = serializers.DateTimeField(
        allow_null=True, help_text="When it was archived; lists omit it."
    )
    acknowledgement = serializers.CharField(
        allow_blank=True, help_text="Note of the user who acknowledged what needs attention."
    )
    revision = serializers.IntegerField(help_text="Number of edits; required by the next one.")
    monitor = serializers.CharField(
        allow_null=True, help_text="Name of the metric that the config monitors."
    )
    created_at = serializers.DateTimeField()
    queued_at = serializers.DateTimeField()


class ErrorSerializer(serializers.Serializer[Any]):
    code = serializers.CharField()
    message = serializers.CharField()
    traceback = serializers.CharField(allow_blank=True)


@extend_schema_serializer(deprecate_fields=["id", "state"])
class OperationDetailSerializer(OperationSerializer):
    """One operation with its config, and what came of it."""

    config = serializers.DictField(help_text="Validated config with defaults.")
    config_given = serializers.DictField(help_text="Config as submitted.")
    config_hash = serializers.CharField(help_text="SHA-256 of the canonical JSON.")
    stop_requested_at = serializers.DateTimeField(allow_null=True)
    stop_requested_by = serializers.CharField(allow_blank=True)
    lease_expires_at = serializers.DateTimeField(allow_null=True)
    resume_from = serializers.CharField(
        allow_blank=True, help_text="Checkpoint chosen for the resume."
    )
    forked_from = serializers.CharField(
        allow_null=True, help_text="Operation that provided its initial checkpoint."
    )
    notes = serializers.CharField(allow_blank=True)
    result = serializers.DictField(allow_null=True)
    error = ErrorSerializer(allow_null=True)


class ResumedFromSerializer(serializers.Serializer[Any]):
    checkpoint_id = serializers.CharField()
    checkpoint_type = serializers.CharField()
    created_at = serializers.DateTimeField()
    step = serializers.IntegerField()
    unit = serializers.CharField(help_text="Name of one step.")
    place = serializers.CharField(help_text='Position as text, such as "epoch 29" or "bar 7000".')
    progress_percent = serializers.FloatField()
    epoch = serializers.IntegerField(
        required=False, help_text="Current epoch (kinds that have epochs)."
    )
    bar_index = serializers.IntegerField(
        required=False, help_text="Index of the current bar (kinds that have bars)."
    )
    round = serializers.IntegerField(
        required=False, help_text="Completed rounds (kinds that have rounds)."
    )
    clients_done = serializers.IntegerField(
        required=False, help_text="Completed clients of the current round (kinds that have rounds)."
    )
    client_epoch = serializers.IntegerField(
        required=False,
        help_text="Completed local epochs of the current client (kinds that have rounds).",
    )
    episode = serializers.IntegerField(
        required=False, help_text="Completed episodes (kinds that have episodes)."
    )


class SkippedSerializer(serializers.Serializer[Any]):
    """A newer checkpoint that was not used because it is damaged."""

    checkpoint_id = serializers.CharField()
    step = serializers.IntegerField()
    place = serializers.CharField()
    problem = serializers.CharField()
    missing_artifacts = serializers.ListField(child=serializers.CharField())
    altered_artifacts = serializers.ListField(child=serializers.CharField())


class ResumptionSerializer(serializers.Serializer[Any]):
    operation_id = serializers.CharField()
    status = serializers.ChoiceField(choices=State.choices)
    resumed_from = ResumedFromSerializer()
    skipped = SkippedSerializer(many=True)
    message = serializers.CharField(help_text='Message, such as "Training resumed from epoch 29".')


class DeletionSerializer(serializers.Serializer[Any]):
    message = serializers.CharField()
    num_checkpoints = serializers.IntegerField()
    freed_bytes = serializers.IntegerField()


class ArtifactSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    size_bytes = serializers.IntegerField()
    blake3 = serializers.CharField()
    checkpoint_id = serializers.CharField()
    checkpoint_type = serializers.CharField()
    step = serializers.IntegerField()
    url = serializers.CharField(help_text="Download URL.")
