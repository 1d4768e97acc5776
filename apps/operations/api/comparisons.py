"""The endpoint that compares operations."""

from typing import Any

import orjson
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.operations.comparisons import services as comparisons
from apps.operations.comparisons.records import PARTS
from apps.operations.filters import ComparisonQuery, ImportanceOfQuery
from apps.operations.lifecycle import State
from trainops.http.asking import query_of
from trainops.http.envelope import OPTIONS

BY_ID = "By operation id; operations without a value are left out."


class ComparedOperationSerializer(serializers.Serializer[Any]):
    operation_id = serializers.CharField()
    name = serializers.CharField()
    kind = serializers.CharField()
    recipe = serializers.CharField(allow_blank=True)
    status = serializers.ChoiceField(choices=State.choices)
    stop_requested = serializers.ChoiceField(choices=["cancel", "kill"], allow_blank=True)
    unit = serializers.CharField(allow_blank=True)
    step = serializers.IntegerField()
    total_steps = serializers.IntegerField()
    percent = serializers.FloatField()
    problem = serializers.CharField(
        allow_blank=True, help_text="Why its code and environment are not known."
    )


class DifferenceSerializer(serializers.Serializer[Any]):
    path = serializers.CharField(
        help_text="Dotted path in the config, or the name of a file, package, dataset or property."
    )
    values = serializers.DictField(help_text=BY_ID)


class PartDifferencesSerializer(serializers.Serializer[Any]):
    part = serializers.ChoiceField(choices=PARTS)
    rows = DifferenceSerializer(many=True)
    num_equal = serializers.IntegerField(help_text="Number of paths that do not differ.")


class CellSerializer(serializers.Serializer[Any]):
    value = serializers.JSONField(help_text="Number; NaN and infinities are text.")
    step = serializers.IntegerField(allow_null=True, help_text="Null for a value of the result.")
    delta = serializers.FloatField(
        allow_null=True, help_text="Difference to the value of the baseline."
    )


class ValueRowSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(help_text="Metric, or dotted path in the result.")
    what = serializers.ChoiceField(choices=["result", "final", "best", "lowest", "highest"])
    mode = serializers.ChoiceField(
        choices=["min", "max"],
        allow_null=True,
        help_text="Which values are better; null if not known.",
    )
    values = serializers.DictField(child=CellSerializer(), help_text=BY_ID)
    best = serializers.ListField(
        child=serializers.CharField(), help_text="Operations with the best value."
    )


class ComparedCurveSerializer(serializers.Serializer[Any]):
    steps = serializers.ListField(child=serializers.IntegerField())
    values = serializers.ListField(help_text="One value per step; NaN and infinities are text.")


class MetricCurvesSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    series = serializers.DictField(child=ComparedCurveSerializer(), help_text=BY_ID)


class DimensionSerializer(serializers.Serializer[Any]):
    key = serializers.CharField(help_text="Path of a field, or a metric and what its value is.")
    name = serializers.CharField()
    what = serializers.ChoiceField(
        choices=["field", "result", "final", "best", "lowest", "highest"]
    )
    mode = serializers.ChoiceField(
        choices=["min", "max"],
        allow_null=True,
        help_text="Which values are better; null if not known.",
    )
    values = serializers.ListField(
        help_text="A number, text or null (no value) for each operation, in their order."
    )


class ShareSerializer(serializers.Serializer[Any]):
    field = serializers.CharField(help_text="Path in the config.")
    share = serializers.FloatField(help_text="From 0 to 1; together 1.")


class ImportanceSerializer(serializers.Serializer[Any]):
    target = serializers.CharField(
        allow_blank=True, help_text="Key of the value that is explained."
    )
    num_operations = serializers.IntegerField(help_text="Completed operations with this value.")
    shares = ShareSerializer(many=True, help_text="The largest first.")
    problem = serializers.CharField(
        allow_blank=True, help_text="Why there are no shares, such as fewer than 8 operations."
    )


class ComparisonSerializer(serializers.Serializer[Any]):
    baseline = serializers.CharField()
    operations = ComparedOperationSerializer(many=True, help_text="In the order of the request.")
    differences = PartDifferencesSerializer(many=True)
    values = ValueRowSerializer(many=True)
    curves = MetricCurvesSerializer(
        many=True, help_text="Points that no resume has retired, without speed and GPU."
    )
    left_out = serializers.ListField(
        child=serializers.CharField(), help_text="Metrics beyond the first 40."
    )
    is_thinned = serializers.BooleanField()
    dimensions = DimensionSerializer(
        many=True, help_text="What operations can be drawn over: fields that differ, and values."
    )
    target = serializers.CharField(
        allow_blank=True, help_text="Key of the value that judges by default."
    )


class ComparisonView(APIView):
    @extend_schema(
        operation_id="operations_compare",
        parameters=[ComparisonQuery],
        responses=ComparisonSerializer,
    )
    def get(self, request: Request) -> Response:
        """Compare 2 to 12 operations: differences, values, and curves of at most 60,000 points.

        Long curves are thinned; they keep their extremes and their newest point.
        """
        query = query_of(request, ComparisonQuery)
        comparison = comparisons.compare(query["ids"], query["baseline"])
        return Response(orjson.Fragment(orjson.dumps(comparison, option=OPTIONS)))


class ImportanceView(APIView):
    @extend_schema(
        operation_id="operations_importance",
        parameters=[ImportanceOfQuery],
        responses=ImportanceSerializer,
    )
    def get(self, request: Request) -> Response:
        """Return the importance of config fields for a value, among 8 to 12 completed operations.

        Shares of a random forest (mean decrease of impurity). While another one is computed, the
        response is 503 `BUSY`.
        """
        query = query_of(request, ImportanceOfQuery)
        return Response(comparisons.importance_among(query["ids"], query["target"]))
