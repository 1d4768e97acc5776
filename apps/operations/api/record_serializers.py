"""Serializers of an operation's records: attempts, events, curves, log, and the live view."""

from typing import Any

from rest_framework import serializers

from apps.operations.api.serializers import LiveOperationSerializer
from apps.operations.lifecycle import Reason
from apps.operations.models import Attempt


class EventSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    what = serializers.CharField(help_text="State or other event.")
    actor = serializers.CharField(allow_blank=True, help_text="User, worker or beat.")
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
    num_nodes = serializers.IntegerField(help_text="Number of workers that compute it.")
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)
    outcome = serializers.ChoiceField(choices=Attempt.Outcome.choices)
    reason = serializers.ChoiceField(choices=Reason.choices[1:], allow_blank=True)
    note = serializers.CharField(allow_blank=True)
    preempted_for = serializers.CharField(
        allow_blank=True, help_text="Operation of higher priority that it makes room for."
    )
    from_step = serializers.IntegerField(allow_null=True)
    to_step = serializers.IntegerField()
    receipt = serializers.DictField(allow_null=True, help_text="Restored parts of the state.")
    timings = serializers.DictField(help_text="Seconds to the first step, by phase.")


ATTEMPT_FIELDS = tuple(AttemptSerializer().fields)


class CurveSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    attempt = serializers.IntegerField()
    retired_by = serializers.IntegerField(
        allow_null=True,
        help_text="Attempt that resumed from an earlier step and replaces these points.",
    )
    steps = serializers.ListField(child=serializers.IntegerField())
    values = serializers.ListField(help_text="One value per step; NaN and infinities are text.")
    at = serializers.ListField(child=serializers.DateTimeField())


class CurvesSerializer(serializers.Serializer[Any]):
    series = CurveSerializer(many=True)
    last_id = serializers.IntegerField(help_text="Value for `after_id` of the next request.")
    is_thinned = serializers.BooleanField()


class LogChunkSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    attempt = serializers.IntegerField()
    at = serializers.DateTimeField()
    text = serializers.CharField(allow_blank=True)


class LogSerializer(serializers.Serializer[Any]):
    chunks = LogChunkSerializer(many=True)
    last_id = serializers.IntegerField(help_text="Value for `after` of the next request.")
    has_more = serializers.BooleanField(
        help_text="Whether more output exists: later output with `after`, otherwise earlier output."
    )


class LiveAttemptSerializer(serializers.Serializer[Any]):
    number = serializers.IntegerField()
    from_step = serializers.IntegerField(
        allow_null=True,
        help_text="Step after which this attempt replaces the points of earlier attempts.",
    )
    outcome = serializers.ChoiceField(choices=Attempt.Outcome.choices)


class LiveSerializer(serializers.Serializer[Any]):
    operation = LiveOperationSerializer()
    attempts = LiveAttemptSerializer(many=True)
    points = CurvesSerializer(required=False)
    log = LogSerializer(required=False)
    events = EventSerializer(many=True, required=False)
