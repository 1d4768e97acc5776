"""What the API takes in, strictly, and the description of what it shows (see rows.py)."""

from typing import Any

from drf_spectacular.utils import extend_schema_serializer
from rest_framework import serializers

from apps.operations.lifecycle import Reason, State
from apps.operations.models import Attempt
from apps.operations.requests.access import Action
from apps.operations.scheduling.waiting import Wait
from trainops.http.serializers import StrictSerializer
from trainops.runtime.labels import LABEL_PATTERN, LABEL_RULE


class SubmissionSerializer(StrictSerializer):
    """What a person wants; `config` is validated by its kind (see /api/v1/kinds)."""

    kind = serializers.CharField(max_length=16)
    config = serializers.DictField(help_text="By the JSON Schema of the kind.")
    name = serializers.CharField(
        max_length=120, required=False, allow_blank=True, default="", help_text="For people."
    )
    tags = serializers.ListField(
        child=serializers.CharField(max_length=64), max_length=20, required=False, default=list
    )
    priority = serializers.IntegerField(
        min_value=-100, max_value=100, required=False, default=0, help_text="Higher goes first."
    )
    queue = serializers.RegexField(
        LABEL_PATTERN,
        max_length=64,
        required=False,
        allow_blank=True,
        default="",
        help_text="A label, such as `a100`: only workers that have it take the operation.",
        error_messages={"invalid": LABEL_RULE},
    )


class ResumeRequestSerializer(StrictSerializer):
    checkpoint_id = serializers.CharField(
        max_length=200,
        required=False,
        allow_blank=True,
        default="",
        help_text="Without it: the newest healthy one.",
    )


class ForkSerializer(StrictSerializer):
    """What is to differ from the operation that it is forked from."""

    checkpoint_id = serializers.CharField(
        max_length=200,
        required=False,
        allow_blank=True,
        default="",
        help_text="Without it: the newest healthy one, the result included.",
    )
    config = serializers.DictField(
        required=False, default=dict, help_text="Fields of the config that differ, by name."
    )
    name = SubmissionSerializer().fields["name"]
    tags = SubmissionSerializer().fields["tags"]
    priority = serializers.IntegerField(
        min_value=-100, max_value=100, required=False, allow_null=True, default=None,
        help_text="Without it: that of the other.",
    )  # fmt: skip


@extend_schema_serializer(deprecate_fields=["id", "state"])
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
    attempt = serializers.IntegerField(help_text="How many there have been.")
    worker_id = serializers.CharField(allow_blank=True)
    not_before = serializers.DateTimeField(allow_null=True, help_text="Paused before a restart.")
    unit = serializers.CharField(allow_blank=True, help_text="What one step is called.")
    place = serializers.CharField(allow_blank=True, help_text="For people: epoch 3 of 20.")
    step = serializers.IntegerField()
    total_steps = serializers.IntegerField()
    percent = serializers.FloatField()
    steps_per_second = serializers.FloatField(allow_null=True)
    eta_seconds = serializers.FloatField(allow_null=True)
    metrics = serializers.DictField(help_text="The newest value of each; text if not finite.")
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    progressed_at = serializers.DateTimeField(allow_null=True)
    owner = serializers.CharField(allow_null=True)
    part_of = serializers.CharField(
        allow_null=True, help_text="The distributed operation of which it is one client's part."
    )
    self_check = serializers.CharField(
        allow_blank=True,
        help_text="The newest result of a self-check: `equal`, `differs` or `not_loaded`.",
    )
    needs_attention = serializers.BooleanField(
        help_text="Failed, or a self-check found that a resume is not exact or impossible."
    )
    is_resumable = serializers.BooleanField(help_text="Ended early, with a healthy checkpoint.")
    allowed_actions = serializers.ListField(
        child=serializers.ChoiceField(choices=[each.value for each in Action]),
        help_text="What the caller may do with it now.",
    )


class WaitingForSerializer(serializers.Serializer[Any]):
    code = serializers.ChoiceField(choices=[each.value for each in Wait])
    message = serializers.CharField(help_text="For people.")


@extend_schema_serializer(deprecate_fields=["id", "state"])
class OperationSerializer(LiveOperationSerializer):
    """One operation, as lists show it."""

    kind = serializers.CharField()
    recipe = serializers.CharField(allow_blank=True)
    name = serializers.CharField()
    tags = serializers.ListField(child=serializers.CharField())
    priority = serializers.IntegerField()
    queue = serializers.CharField(allow_blank=True, help_text="The label it asks for.")
    waiting_for = WaitingForSerializer(
        allow_null=True, help_text="What it waits for; null where it does not wait."
    )
    restarts_used = serializers.IntegerField(help_text="Since the last progress.")
    created_at = serializers.DateTimeField()
    queued_at = serializers.DateTimeField()


class ErrorSerializer(serializers.Serializer[Any]):
    code = serializers.CharField()
    message = serializers.CharField()
    traceback = serializers.CharField(allow_blank=True)


@extend_schema_serializer(deprecate_fields=["id", "state"])
class OperationDetailSerializer(OperationSerializer):
    """One operation with its config, and what came of it."""

    config = serializers.DictField(help_text="As validated, defaults filled in.")
    config_given = serializers.DictField(help_text="As submitted.")
    config_hash = serializers.CharField(help_text="SHA-256 of the canonical JSON.")
    stop_requested_at = serializers.DateTimeField(allow_null=True)
    stop_requested_by = serializers.CharField(allow_blank=True)
    lease_expires_at = serializers.DateTimeField(allow_null=True)
    resume_from = serializers.CharField(allow_blank=True, help_text="A chosen checkpoint.")
    forked_from = serializers.CharField(
        allow_null=True, help_text="The operation that its first checkpoint is of."
    )
    result = serializers.DictField(allow_null=True)
    error = ErrorSerializer(allow_null=True)


class ResumedFromSerializer(serializers.Serializer[Any]):
    checkpoint_id = serializers.CharField()
    checkpoint_type = serializers.CharField()
    created_at = serializers.DateTimeField()
    step = serializers.IntegerField()
    unit = serializers.CharField(help_text="What one step is called.")
    place = serializers.CharField(help_text="For people: epoch 29, bar 7000, round 3, episode 43.")
    progress_percent = serializers.FloatField()
    epoch = serializers.IntegerField(required=False, help_text="Training.")
    bar_index = serializers.IntegerField(required=False, help_text="Backtests.")
    round = serializers.IntegerField(required=False, help_text="Federated: completed rounds.")
    clients_done = serializers.IntegerField(
        required=False, help_text="Federated: completed clients of the round in progress."
    )
    client_epoch = serializers.IntegerField(
        required=False, help_text="Federated: completed local epochs of the client in progress."
    )
    episode = serializers.IntegerField(
        required=False, help_text="Reinforcement learning: completed episodes."
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
    message = serializers.CharField(help_text="E.g. Training resumed from epoch 29")


class DeletionSerializer(serializers.Serializer[Any]):
    message = serializers.CharField()
    num_checkpoints = serializers.IntegerField()
    freed_bytes = serializers.IntegerField()


class EventSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    what = serializers.CharField(help_text="A state, or what else happened.")
    actor = serializers.CharField(allow_blank=True, help_text="A person, a worker, beat.")
    note = serializers.CharField(allow_blank=True)
    from_state = serializers.CharField(allow_blank=True)
    attempt = serializers.IntegerField()


EVENT_FIELDS = tuple(EventSerializer().fields)


class AttemptSerializer(serializers.Serializer[Any]):
    number = serializers.IntegerField()
    worker_id = serializers.CharField()
    host = serializers.CharField(allow_blank=True)
    pid = serializers.IntegerField(allow_null=True)
    device = serializers.CharField(allow_blank=True)
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)
    outcome = serializers.ChoiceField(choices=Attempt.Outcome.choices)
    reason = serializers.ChoiceField(choices=Reason.choices[1:], allow_blank=True)
    note = serializers.CharField(allow_blank=True)
    from_step = serializers.IntegerField(allow_null=True)
    to_step = serializers.IntegerField()
    receipt = serializers.DictField(allow_null=True, help_text="What the resume restored.")
    timings = serializers.DictField(help_text="Seconds to the first step, in parts.")


ATTEMPT_FIELDS = tuple(AttemptSerializer().fields)


class CurveSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    attempt = serializers.IntegerField()
    retired_by = serializers.IntegerField(
        allow_null=True, help_text="The attempt that resumed from before these points."
    )
    steps = serializers.ListField(child=serializers.IntegerField())
    values = serializers.ListField(help_text="As many as steps. NaN and infinities are text.")
    at = serializers.ListField(child=serializers.DateTimeField())


class CurvesSerializer(serializers.Serializer[Any]):
    series = CurveSerializer(many=True)
    last_id = serializers.IntegerField(help_text="For after_id of the next request.")
    is_thinned = serializers.BooleanField()


class LogChunkSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    attempt = serializers.IntegerField()
    at = serializers.DateTimeField()
    text = serializers.CharField(allow_blank=True)


class LogSerializer(serializers.Serializer[Any]):
    chunks = LogChunkSerializer(many=True)
    last_id = serializers.IntegerField(help_text="For `after` of the next request.")
    has_more = serializers.BooleanField(help_text="Later output with `after`, else earlier.")


class LiveAttemptSerializer(serializers.Serializer[Any]):
    number = serializers.IntegerField()
    from_step = serializers.IntegerField(
        allow_null=True, help_text="It retired the older attempts' points after this step."
    )
    outcome = serializers.ChoiceField(choices=Attempt.Outcome.choices)


class LiveSerializer(serializers.Serializer[Any]):
    operation = LiveOperationSerializer()
    attempts = LiveAttemptSerializer(many=True)
    points = CurvesSerializer(required=False)
    log = LogSerializer(required=False)
    events = EventSerializer(many=True, required=False)


class ArtifactSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    size_bytes = serializers.IntegerField()
    blake3 = serializers.CharField()
    checkpoint_id = serializers.CharField()
    checkpoint_type = serializers.CharField()
    step = serializers.IntegerField()
    url = serializers.CharField(help_text="Where its bytes are.")
