"""The endpoint of the weekly usage report."""

from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.workers.usage import NAMES, weekly_usage
from trainops.http.asking import query_of
from trainops.http.etags import with_etag
from trainops.http.serializers import StrictSerializer

MAX_WEEKS = 104


class UsageQuery(StrictSerializer):
    by = serializers.ChoiceField(
        choices=list(NAMES), default="project", help_text="Grouping of the rows."
    )
    weeks = serializers.IntegerField(
        min_value=1,
        max_value=MAX_WEEKS,
        default=8,
        help_text="Number of weeks, from Monday to Sunday in UTC; the current week is the first.",
    )


class UsageSerializer(serializers.Serializer[Any]):
    """What the operations of one project, owner or kind computed in one week."""

    week = serializers.DateField(help_text="Its Monday.")
    name = serializers.CharField(
        allow_blank=True, help_text="Empty: operations without a project or owner."
    )
    num_attempts = serializers.IntegerField(help_text="Attempts that ran in this week.")
    compute_hours = serializers.FloatField(
        help_text="Time of attempts in this week, times their processes."
    )
    gpu_hours = serializers.FloatField(help_text="The same, times their GPUs.")


class WeeklyUsageSerializer(serializers.Serializer[Any]):
    by = serializers.CharField()
    rows = UsageSerializer(
        many=True, help_text="The newest week first, and in it the most compute hours."
    )


class UsageView(APIView):
    @extend_schema(operation_id="usage", parameters=[UsageQuery], responses=WeeklyUsageSerializer)
    @with_etag
    def get(self, request: Request) -> Response:
        """Return compute and GPU hours of each week by project, owner or kind.

        Coordinators of subtasks count through their subtasks.
        """
        query = query_of(request, UsageQuery)
        rows = weekly_usage(query["by"], query["weeks"])
        return Response({"by": query["by"], "rows": [asdict(each) for each in rows]})
