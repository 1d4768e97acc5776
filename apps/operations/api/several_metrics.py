"""The endpoint that returns the metrics of several operations."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.operations.api.record_serializers import CurvesSerializer
from apps.operations.api.records import curves_json, ready
from apps.operations.errors import OperationNotFound
from apps.operations.filters import ManyField, MetricsQuery, WindowQuery
from apps.operations.models import Operation
from apps.operations.points import metric_queries
from trainops.http.asking import query_of

MAX_OPERATIONS = 50


class SeveralMetricsQuery(WindowQuery):
    ids = ManyField(help_text=f"Ids of 1 to {MAX_OPERATIONS} operations, separated by commas.")
    max_points = MetricsQuery().fields["max_points"]

    def validate_ids(self, ids: list[str]) -> list[str]:
        """Return each id once, in the order of the request."""
        once = list(dict.fromkeys(each for each in ids if each))
        if not 1 <= len(once) <= MAX_OPERATIONS:
            problem = f"got {len(once)}; allowed: 1 to {MAX_OPERATIONS} ids, separated by commas"
            raise serializers.ValidationError(problem)
        return once


class OperationCurvesSerializer(CurvesSerializer):
    operation_id = serializers.CharField()


class SeveralCurvesSerializer(serializers.Serializer[Any]):
    operations = OperationCurvesSerializer(many=True, help_text="In the order of the request.")


class SeveralMetricsView(APIView):
    @extend_schema(
        operation_id="operations_several_metrics",
        parameters=[SeveralMetricsQuery],
        responses=SeveralCurvesSerializer,
    )
    def get(self, request: Request) -> Response:
        """Return the curves of up to 50 operations, about 200,000 points at most.

        Long curves are thinned; they keep their extremes and their newest point.
        """
        query = query_of(request, SeveralMetricsQuery)
        ids, names = query.pop("ids"), query.pop("name", ())
        known = set(Operation.objects.filter(pk__in=ids).values_list("pk", flat=True))
        if missing := [each for each in ids if each not in known]:
            raise OperationNotFound(missing[0])
        found = metric_queries.curves_of_several(ids, names=names, **query)
        rows = [{"operation_id": each, **curves_json(curves)} for each, curves in found.items()]
        return Response(ready({"operations": rows}))
