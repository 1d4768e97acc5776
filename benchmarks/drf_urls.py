"""The addresses of the product, and those of ModelViewSets over the same operations."""

from typing import Any, cast

from django.urls import path
from rest_framework import serializers
from rest_framework.pagination import CursorPagination, LimitOffsetPagination
from rest_framework.viewsets import ModelViewSet

from apps.operations import attention
from apps.operations.api.rows import ROW_FIELDS
from apps.operations.lifecycle import State
from apps.operations.models import Operation
from apps.operations.requests import access
from apps.operations.scheduling import queue_status
from trainops import progress
from trainops.urls import urlpatterns as of_product

COMPUTED = {"monitor"}  # from the config: no column


class OperationModelSerializer(serializers.ModelSerializer[Operation]):
    owner = serializers.CharField(source="owner.username")
    tags = serializers.SlugRelatedField(many=True, read_only=True, slug_field="name")

    class Meta:
        model = Operation
        fields = (*(each for each in ROW_FIELDS if each not in COMPUTED), "owner", "tags")


class CompleteSerializer(OperationModelSerializer):
    """Also what our rows compute, by the same functions, as methods of the serializer."""

    operation_id = serializers.CharField(source="id")
    status = serializers.CharField(source="state")
    monitor = serializers.CharField(source="config.monitor", default=None)
    part_of = serializers.CharField(source="subtask.parent_id", default=None)
    percent = serializers.SerializerMethodField()
    eta_seconds = serializers.SerializerMethodField()
    attention = serializers.SerializerMethodField()
    needs_attention = serializers.SerializerMethodField()
    is_resumable = serializers.SerializerMethodField()
    allowed_actions = serializers.SerializerMethodField()
    waiting_for = serializers.SerializerMethodField()

    class Meta(OperationModelSerializer.Meta):
        fields = (
            *OperationModelSerializer.Meta.fields, "operation_id", "status", "monitor", "part_of",
            "percent", "eta_seconds", "attention", "needs_attention", "is_resumable",
            "allowed_actions", "waiting_for",
        )  # fmt: skip

    def get_percent(self, operation: Operation) -> float:
        return progress.percent(operation.step, operation.total_steps)

    def get_eta_seconds(self, operation: Operation) -> float | None:
        if operation.state != State.RUNNING:
            return None
        return progress.eta_seconds(
            operation.step, operation.total_steps, operation.steps_per_second
        )

    def get_attention(self, operation: Operation) -> list[dict[str, str]]:
        return [
            {"code": each.value, "message": each.label, "next_step": attention.NEXT_STEPS[each]}
            for each in attention.reasons(cast(Any, vars(operation)))
        ]

    def get_needs_attention(self, operation: Operation) -> bool:
        return attention.is_needed(cast(Any, vars(operation)))

    def get_is_resumable(self, operation: Operation) -> bool:
        return access.is_resumable(operation)

    def get_allowed_actions(self, operation: Operation) -> list[str]:
        return access.allowed_actions(operation, self.context["request"].user)

    def get_waiting_for(self, operation: Operation) -> dict[str, str] | None:
        found = queue_status.of_all([cast(Any, vars(operation))]).get(operation.pk)
        return {"code": found.code, "message": found.message} if found else None


class Newest(CursorPagination):
    page_size = 50
    ordering = ("-created_at", "-id")


class Counted(LimitOffsetPagination):
    default_limit = 50


class Operations(ModelViewSet[Operation]):
    queryset = Operation.objects.select_related("owner").prefetch_related("tags")
    serializer_class = OperationModelSerializer
    pagination_class: Any = Newest


class CountedOperations(Operations):
    pagination_class = Counted


class CompleteOperations(ModelViewSet[Operation]):
    queryset = (
        access.annotated(Operation.objects.all())
        .select_related("owner", "subtask")
        .prefetch_related("tags")
    )
    serializer_class = CompleteSerializer
    pagination_class = Newest


urlpatterns = [
    path("drf-complete/", CompleteOperations.as_view({"get": "list"})),
    path("drf/", Operations.as_view({"get": "list"})),
    path("drf-counted/", CountedOperations.as_view({"get": "list"})),
    *of_product,
]
