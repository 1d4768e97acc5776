"""Endpoints of shares: every user reads them, admins set and delete them."""

import math
from typing import Any

from django.contrib.auth.models import User
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.operations.errors import ShareNotFound
from apps.operations.models import Share
from apps.operations.models.compute_time import Period
from apps.operations.models.shares import MAX_WEIGHT, MIN_WEIGHT
from apps.operations.requests import shares
from apps.operations.requests.projects import MAX_PROJECT
from trainops.http.asking import body_of, query_of
from trainops.http.permissions import IsAdmin, IsViewer
from trainops.http.serializers import MessageSerializer, StrictSerializer

MAX_NUMBER = 1_000_000
MAX_BYTES = 2**63 - 1


class ShareUseSerializer(serializers.Serializer[Any]):
    """What is used of the limits of a share now."""

    slots = serializers.IntegerField(help_text="Slots of running operations.")
    gpus = serializers.IntegerField(help_text="GPUs of running operations.")
    gpu_hours = serializers.FloatField(
        help_text="GPU hours of this week; 0 where no share limits them."
    )
    budget_gpu_hours = serializers.FloatField(
        help_text="GPU hours of the period of the budget; 0 without a budget."
    )
    budget_compute_hours = serializers.FloatField(
        help_text="Compute hours of the period of the budget; 0 without a budget."
    )


class ShareRequestSerializer(StrictSerializer):
    """The share of an owner or of a project; the present one is replaced. Null: no limit."""

    owner = serializers.SlugRelatedField(
        slug_field="username",
        queryset=User.objects.all(),
        required=False,
        allow_null=True,
        default=None,
        help_text="Username.",
    )
    project = serializers.CharField(
        max_length=MAX_PROJECT, required=False, allow_blank=True, default=""
    )
    members_only = serializers.BooleanField(
        required=False,
        default=False,
        help_text="Whether only members and admins submit to the project; so if it has members.",
    )
    members = serializers.SlugRelatedField(
        slug_field="username",
        queryset=User.objects.all(),
        many=True,
        required=False,
        help_text="Usernames of the users who may submit to the project, besides admins.",
    )
    preemptible = serializers.BooleanField(
        required=False,
        default=True,
        help_text="Whether operations of higher priority may preempt its running operations.",
    )
    weight = serializers.FloatField(
        min_value=MIN_WEIGHT, max_value=MAX_WEIGHT, required=False, default=1.0
    )
    max_slots = serializers.IntegerField(
        min_value=0, max_value=MAX_NUMBER, required=False, allow_null=True, default=None
    )
    max_gpus = serializers.IntegerField(
        min_value=0, max_value=MAX_NUMBER, required=False, allow_null=True, default=None
    )
    gpu_hours_per_week = serializers.FloatField(
        min_value=0, max_value=MAX_NUMBER, required=False, allow_null=True, default=None
    )

    budget_gpu_hours = serializers.FloatField(
        min_value=0,
        max_value=MAX_NUMBER,
        required=False,
        allow_null=True,
        default=None,
        help_text="GPU hours of a period, after which its operations on GPUs are saved and wait.",
    )
    budget_compute_hours = serializers.FloatField(
        min_value=0,
        max_value=MAX_NUMBER,
        required=False,
        allow_null=True,
        default=None,
        help_text="Hours of a period, times processes, after which all of its operations are "
        "saved and wait.",
    )
    budget_period = serializers.ChoiceField(
        choices=Period.values,
        required=False,
        default=Period.WEEK.value,
        error_messages={
            "invalid_choice": f"got {{input!r}}; allowed: {', '.join(Period.values)}",
        },
        help_text="Period of the budget, in UTC: week (from Monday), month or total.",
    )

    max_checkpoint_bytes = serializers.IntegerField(
        min_value=0,
        max_value=MAX_BYTES,
        required=False,
        allow_null=True,
        default=None,
        help_text="Bytes of checkpoints, above which periodic saving pauses.",
    )

    def validate_gpu_hours_per_week(self, value: float | None) -> float | None:
        if value is not None and not math.isfinite(value):
            raise serializers.ValidationError(f"got {value}; allowed: a number, or null")
        return value

    validate_budget_gpu_hours = validate_budget_compute_hours = validate_gpu_hours_per_week


class UsedShareSerializer(serializers.Serializer[Any]):
    """A share, and what is used of it now; null: no limit."""

    share_id = serializers.IntegerField()
    owner = serializers.CharField(allow_null=True)
    project = serializers.CharField(allow_blank=True)
    members_only = serializers.BooleanField(
        help_text="Whether only members and admins submit to the project."
    )
    members = serializers.ListField(
        child=serializers.CharField(),
        help_text="Users who may submit to the project, besides admins.",
    )
    preemptible = serializers.BooleanField(
        help_text="Whether operations of higher priority may preempt its running operations."
    )
    weight = serializers.FloatField()
    max_slots = serializers.IntegerField(allow_null=True)
    max_gpus = serializers.IntegerField(allow_null=True)
    gpu_hours_per_week = serializers.FloatField(allow_null=True)
    budget_gpu_hours = serializers.FloatField(allow_null=True)
    budget_compute_hours = serializers.FloatField(allow_null=True)
    budget_period = serializers.ChoiceField(choices=Period.values)
    budget_renewed_at = serializers.DateTimeField(
        allow_null=True, help_text="End of the period; null: without a budget, or in total."
    )
    max_checkpoint_bytes = serializers.IntegerField(allow_null=True)
    used = ShareUseSerializer()


class SharesView(APIView):
    def get_permissions(self) -> list[Any]:
        return [IsAdmin() if self.request.method == "POST" else IsViewer()]

    @extend_schema(operation_id="shares_list", responses=UsedShareSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List the shares of owners and projects, and what is used of them now."""
        query_of(request)
        return Response(UsedShareSerializer(shares.used(), many=True).data)

    @extend_schema(
        operation_id="shares_set", request=ShareRequestSerializer, responses=UsedShareSerializer
    )
    def post(self, request: Request) -> Response:
        """Set the share of an owner or a project; the present one is replaced (admins only)."""
        wanted = body_of(request, ShareRequestSerializer)
        key = {name: wanted.pop(name) for name in ("owner", "project")}
        members = wanted.pop("members", [])
        share = Share.objects.filter(**key).first() or Share(**key)
        for name, value in wanted.items():
            setattr(share, name, value)
        saved = shares.save(share, members)
        (row,) = shares.used(saved.pk)
        return Response(UsedShareSerializer(row).data)


class ShareView(APIView):
    permission_classes = (IsAdmin,)

    @extend_schema(operation_id="shares_delete", responses={200: MessageSerializer})
    def delete(self, request: Request, share_id: int) -> Response:
        """Delete a share: its owner or project has the weight 1 and no limit of its own."""
        share = Share.objects.filter(pk=share_id).first()
        if share is None:
            raise ShareNotFound(share_id)
        shares.delete(share)
        return Response({"message": f"The share of {share} was deleted."})
