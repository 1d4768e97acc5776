"""What workers say of themselves over HTTP, and how the API shows them."""

from typing import Any

from rest_framework import serializers

from apps.workers.models import Worker
from trainops.engines.registry import ENGINES
from trainops.http.serializers import StrictSerializer

FIELDS = (
    "worker_id", "worker_type", "status", "endpoint_url", "host", "pid", "kinds", "slots",
    "num_running", "capabilities", "current_operation_id", "is_draining", "registered_at",
    "heartbeat_at", "last_error",
)  # fmt: skip


class HeldSerializer(StrictSerializer):
    """One attempt that a worker runs."""

    operation_id = serializers.CharField(max_length=64)
    attempt = serializers.IntegerField(min_value=1, max_value=2**31 - 1)


class SyncRequestSerializer(StrictSerializer):
    running = serializers.ListField(child=HeldSerializer(), max_length=1000)


class HeartbeatRequestSerializer(StrictSerializer):
    running = serializers.ListField(
        child=HeldSerializer(), required=False, default=list, max_length=1000
    )


class RegistrationSerializer(StrictSerializer):
    """A worker of any type; the same registration again changes nothing."""

    worker_id = serializers.RegexField(
        r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,119}\Z",
        help_text="The worker's own name for itself, the same after a restart of the house.",
        error_messages={
            "invalid": "1 to 120 letters, digits, '.', '_', ':', '@' and '-' are allowed"
        },
    )
    worker_type = serializers.CharField(max_length=32, required=False, default="celery")
    endpoint_url = serializers.RegexField(
        r"^https?://[^\s<>\"']+\Z",
        max_length=255,
        required=False,
        allow_blank=True,
        default="",
        error_messages={"invalid": "must begin with http:// or https:// and hold no spaces"},
    )
    capabilities = serializers.DictField(
        required=False, default=dict, help_text="gpu, gpu_type, gpus, cpu_count, ram_bytes, torch"
    )
    current_operation_id = serializers.CharField(
        max_length=64, required=False, allow_blank=True, allow_null=True, default=""
    )
    host = serializers.CharField(max_length=120, required=False, allow_blank=True, default="")
    pid = serializers.IntegerField(
        required=False, allow_null=True, default=None, min_value=1, max_value=2**31 - 1
    )
    kinds = serializers.ListField(
        child=serializers.ChoiceField(
            choices=list(ENGINES),
            error_messages={
                "invalid_choice": f"{{input!r}} is not a kind; allowed: {', '.join(ENGINES)}"
            },
        ),
        required=False,
        default=list,
        max_length=32,
    )
    slots = serializers.IntegerField(required=False, default=1, min_value=1, max_value=1024)
    running = serializers.ListField(
        child=HeldSerializer(),
        required=False,
        default=list,
        max_length=1000,
        help_text="What it runs already, where the house has forgotten it.",
    )


class WorkerSerializer(serializers.Serializer[Any]):
    worker_id = serializers.CharField()
    worker_type = serializers.CharField()
    status = serializers.ChoiceField(choices=Worker.Status.choices)
    endpoint_url = serializers.CharField(allow_blank=True)
    host = serializers.CharField(allow_blank=True)
    pid = serializers.IntegerField(allow_null=True)
    kinds = serializers.ListField(child=serializers.CharField())
    slots = serializers.IntegerField()
    num_running = serializers.IntegerField()
    capabilities = serializers.DictField()
    current_operation_id = serializers.CharField(allow_blank=True)
    is_draining = serializers.BooleanField()
    registered_at = serializers.DateTimeField()
    heartbeat_at = serializers.DateTimeField()
    last_error = serializers.CharField(allow_blank=True)


class OrderSerializer(serializers.Serializer[Any]):
    """What the worker is to do with an attempt it reported."""

    operation_id = serializers.CharField()
    attempt = serializers.IntegerField()
    directive = serializers.ChoiceField(choices=["proceed", "cancel", "kill", "stop"])
    reason = serializers.CharField(allow_blank=True)


class StandingSerializer(serializers.Serializer[Any]):
    worker_id = serializers.CharField()
    status = serializers.ChoiceField(choices=Worker.Status.choices)
    registered_at = serializers.DateTimeField()
    is_draining = serializers.BooleanField()
    orders = OrderSerializer(many=True)
