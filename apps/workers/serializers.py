"""What workers say of themselves over HTTP, and how the API shows them."""

from typing import Any

from rest_framework import serializers

from apps.workers.models import LOCAL, Worker
from apps.workers.reports import RECORDED_AS
from trainops.http.serializers import StrictSerializer
from trainops.kind import KINDS

FIELDS = (
    "worker_id", "worker_type", "status", "endpoint_url", "host", "pid", "kinds", "slots",
    "num_running", "capabilities", "current_operation_id", "is_draining", "registered_at",
    "heartbeat_at", "storage_problem", "dataset_problem", "last_error", "drain_reason",
    "ends_at", "idle_exit_seconds",
)  # fmt: skip

MAX_SECONDS = 366 * 86_400.0


class HeldSerializer(StrictSerializer):
    """One attempt that a worker runs."""

    operation_id = serializers.CharField(max_length=64)
    attempt = serializers.IntegerField(min_value=1, max_value=2**31 - 1)


class ToldErrorSerializer(StrictSerializer):
    code = serializers.CharField(
        max_length=64,
        help_text="Reason code of trainops (OUT_OF_MEMORY, …) or of the worker.",
    )
    message = serializers.CharField(max_length=10_000, allow_blank=True)
    traceback = serializers.CharField(
        max_length=100_000, required=False, allow_blank=True, default="", trim_whitespace=False
    )


class EndedSerializer(StrictSerializer):
    """One attempt that has ended."""

    operation_id = serializers.CharField(max_length=64)
    attempt = serializers.IntegerField(min_value=1, max_value=2**31 - 1)
    outcome = serializers.ChoiceField(
        choices=list(RECORDED_AS),
        error_messages={
            "invalid_choice": f"{{input!r}} is not an outcome; allowed: {', '.join(RECORDED_AS)}"
        },
    )
    result = serializers.DictField(required=False, allow_null=True, default=None)
    error = ToldErrorSerializer(required=False, allow_null=True, default=None)
    completed_at = serializers.DateTimeField(
        required=False, allow_null=True, default=None, help_text="Time by the worker's clock."
    )

    def validate(self, attrs: dict[str, object]) -> dict[str, object]:
        if attrs["outcome"] == "failed" and attrs["error"] is None:
            raise serializers.ValidationError({"error": "is required where the outcome is failed"})
        for field, outcome in (("error", "failed"), ("result", "completed")):
            if attrs[field] is not None and attrs["outcome"] != outcome:
                problem = f"belongs to the outcome {outcome}, not to {attrs['outcome']}"
                raise serializers.ValidationError({field: problem})
        return attrs


class ReportSerializer(StrictSerializer):
    """What a worker has: attempts that run, and attempts that ended since it was last heard."""

    running = serializers.ListField(
        child=HeldSerializer(), required=False, default=list, max_length=1000
    )
    completed = serializers.ListField(
        child=EndedSerializer(),
        required=False,
        default=list,
        max_length=1000,
        help_text="Ended attempts. Idempotent: repeat the report until it is acknowledged.",
    )


class SyncRequestSerializer(ReportSerializer):
    running = serializers.ListField(child=HeldSerializer(), max_length=1000)


class GpuLoadSerializer(StrictSerializer):
    id = serializers.CharField(max_length=120)
    percent = serializers.FloatField(min_value=0, max_value=100)
    memory_bytes = serializers.IntegerField(min_value=0, max_value=2**63 - 1)


class LoadSerializer(StrictSerializer):
    """How busy the machine of a worker is."""

    cpu_percent = serializers.FloatField(
        min_value=0, max_value=100, help_text="Mean of all cores since the sample before."
    )
    memory_bytes = serializers.IntegerField(min_value=0, max_value=2**63 - 1)
    gpus = serializers.ListField(
        child=GpuLoadSerializer(), required=False, default=list, max_length=64
    )


class LoadSampleSerializer(LoadSerializer):
    at = serializers.DateTimeField()


class LoadOfDaySerializer(serializers.Serializer[Any]):
    worker_id = serializers.CharField()
    samples = LoadSampleSerializer(many=True, help_text="Of the last day, the oldest first.")


class HeartbeatRequestSerializer(ReportSerializer):
    load = LoadSerializer(
        required=False, allow_null=True, default=None,
        help_text="A sample of the machine's load, each minute.",
    )  # fmt: skip
    last_error = serializers.CharField(
        max_length=2000, required=False, allow_blank=True, allow_null=True, default=None,
        help_text="Latest error; if omitted, the previous value remains.",
    )  # fmt: skip


class RegistrationSerializer(ReportSerializer):
    """A worker of any type; the same registration again changes nothing."""

    worker_id = serializers.RegexField(
        r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,119}\Z",
        help_text="Id of the worker; remains the same when the server restarts.",
        error_messages={
            "invalid": "1 to 120 letters, digits, '.', '_', ':', '@' and '-' are allowed"
        },
    )
    worker_type = serializers.CharField(
        max_length=32,
        required=False,
        default="custom",
        help_text=f"Type of the worker; {LOCAL!r} is reserved for workers of this installation.",
    )
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
        max_length=64,
        required=False,
        allow_blank=True,
        allow_null=True,
        default="",
        help_text="Operation that it runs, if `running` does not list the attempt.",
    )
    host = serializers.CharField(max_length=120, required=False, allow_blank=True, default="")
    pid = serializers.IntegerField(
        required=False, allow_null=True, default=None, min_value=1, max_value=2**31 - 1
    )
    kinds = serializers.ListField(
        child=serializers.ChoiceField(
            choices=list(KINDS),
            error_messages={
                "invalid_choice": f"{{input!r}} is not a kind; allowed: {', '.join(KINDS)}"
            },
        ),
        required=False,
        default=list,
        max_length=32,
    )
    slots = serializers.IntegerField(required=False, default=1, min_value=1, max_value=1024)

    ends_in_seconds = serializers.FloatField(
        required=False, allow_null=True, default=None, min_value=0, max_value=MAX_SECONDS,
        help_text="Seconds until the worker ends by itself; null: it has no end. It gets `preempt` "
        "in time to save, and no operation whose first checkpoint is expected later.",
    )  # fmt: skip
    idle_exit_seconds = serializers.FloatField(
        required=False, allow_null=True, default=None, min_value=0, max_value=MAX_SECONDS,
        help_text="Seconds without work after which the worker ends by itself; only shown.",
    )  # fmt: skip

    def validate_worker_type(self, worker_type: str) -> str:
        if worker_type == LOCAL:
            raise serializers.ValidationError(
                f"got {LOCAL!r}, the type of this installation's own workers; allowed: any other"
            )
        return worker_type


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
    storage_problem = serializers.CharField(
        allow_blank=True,
        help_text="Reason it cannot read or write checkpoints; it accepts no operations then.",
    )
    dataset_problem = serializers.CharField(
        allow_blank=True,
        help_text="Reason it cannot read datasets; it accepts no operations that use some then.",
    )
    last_error = serializers.CharField(allow_blank=True)
    drain_reason = serializers.CharField(
        allow_blank=True, help_text="User or reason that drains the worker."
    )
    ends_at = serializers.DateTimeField(
        allow_null=True, help_text="Time at which it saves and ends by itself; null: no end."
    )
    idle_exit_seconds = serializers.FloatField(
        allow_null=True,
        help_text="Seconds without work after which it ends by itself; null: it waits on.",
    )


class OrderSerializer(serializers.Serializer[Any]):
    """What the worker is to do with an attempt it reported."""

    operation_id = serializers.CharField()
    attempt = serializers.IntegerField()
    directive = serializers.ChoiceField(choices=["proceed", "cancel", "kill", "stop"])
    reason = serializers.CharField(allow_blank=True)


class VerdictSerializer(serializers.Serializer[Any]):
    """Whether the end of an attempt was taken down; the worker may forget it in either case."""

    operation_id = serializers.CharField()
    attempt = serializers.IntegerField()
    accepted = serializers.BooleanField()
    reason = serializers.CharField(
        allow_blank=True,
        help_text="Reason for a rejection: SUPERSEDED, UNKNOWN_OPERATION or the state in "
        "which it already ended; KNOWN_ALREADY for a repeated report.",
    )


class HeartbeatResponseSerializer(serializers.Serializer[Any]):
    worker_id = serializers.CharField()
    status = serializers.ChoiceField(choices=Worker.Status.choices)
    registered_at = serializers.DateTimeField()
    is_draining = serializers.BooleanField()
    stop_operations = serializers.ListField(
        child=serializers.CharField(),
        help_text="Operations to stop; `orders` has the mode and the reason.",
    )
    orders = OrderSerializer(many=True)
    completed = VerdictSerializer(many=True)
