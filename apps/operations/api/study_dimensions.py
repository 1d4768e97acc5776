"""Endpoints of what the operations of a study are drawn over, and of parameter importance."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.operations.api.comparisons import DimensionSerializer, ImportanceSerializer
from apps.operations.filters import ImportanceQuery
from apps.operations.lifecycle import State
from apps.operations.studies import dimensions
from apps.operations.studies import services as studies
from trainops.http.asking import query_of
from trainops.http.etags import with_etag


class DrawnOperationSerializer(serializers.Serializer[Any]):
    operation_id = serializers.CharField()
    name = serializers.CharField()
    status = serializers.ChoiceField(choices=State.choices)


class StudyDimensionsSerializer(serializers.Serializer[Any]):
    target = serializers.CharField(allow_blank=True, help_text="Key of the objective.")
    is_active = serializers.BooleanField(help_text="Whether further values may follow.")
    operations = DrawnOperationSerializer(
        many=True, help_text="The best first; of a walk-forward analysis those in sample."
    )
    dimensions = DimensionSerializer(many=True)


class StudyDimensionsView(APIView):
    @extend_schema(operation_id="studies_dimensions", responses=StudyDimensionsSerializer)
    @with_etag
    def get(self, request: Request, study_id: str) -> Response:
        """Return tried values, objectives and metrics of the operations, as columns."""
        query_of(request)
        return Response(dimensions.of(studies.get(study_id)))


class StudyImportanceView(APIView):
    @extend_schema(
        operation_id="studies_importance",
        parameters=[ImportanceQuery],
        responses=ImportanceSerializer,
    )
    def get(self, request: Request, study_id: str) -> Response:
        """Return the importance of the tried values for a value, by 8 completed operations or more.

        Shares of a random forest (mean decrease of impurity). While another one is computed, the
        response is 503 `BUSY`.
        """
        query = query_of(request, ImportanceQuery)
        return Response(dimensions.importance_of(studies.get(study_id), query["target"]))
