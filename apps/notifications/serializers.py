"""Fields of the notification endpoints."""

from rest_framework import serializers

from apps.notifications.models import Delivery, Rule
from trainops.http.serializers import StrictSerializer

WRITABLE = [
    "name", "channel", "target", "on_failed", "on_cancelled", "on_completed", "on_attention",
    "kind", "owner", "reason", "tag", "project", "condition",
    "metric", "mode", "points", "digest_hour", "is_active",
]  # fmt: skip


class RuleSerializer(serializers.ModelSerializer[Rule]):
    """A rule, with the secret of its signature."""

    rule_id = serializers.IntegerField(source="pk", read_only=True)
    user = serializers.CharField(
        source="user.username", read_only=True, allow_null=True, default=None,
        help_text="User that created it.",
    )  # fmt: skip

    class Meta:
        model = Rule
        fields = ["rule_id", "user", *WRITABLE, "secret", "created_at"]
        read_only_fields = fields


class RuleRequestSerializer(StrictSerializer, serializers.ModelSerializer[Rule]):
    """The fields of a rule that a request sets; `apps.notifications.validation` checks them."""

    on_failed = serializers.BooleanField(required=False, default=False)

    class Meta:
        model = Rule
        fields = WRITABLE


class DeliverySerializer(serializers.ModelSerializer[Delivery]):
    """A delivery, with the result of its last try."""

    delivery_id = serializers.IntegerField(source="pk", read_only=True)
    rule_id = serializers.IntegerField(read_only=True)

    class Meta:
        model = Delivery
        fields = [
            "delivery_id", "rule_id", "operation_id", "event_id", "what", "status", "num_tries",
            "next_at", "response_status", "error", "body", "created_at",
        ]  # fmt: skip
        read_only_fields = fields


class DeliveryQuery(StrictSerializer):
    rule_id = serializers.IntegerField(required=False, min_value=1, max_value=2**63 - 1)
    status = serializers.ChoiceField(required=False, choices=Delivery.Status.choices)
