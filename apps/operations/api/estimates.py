"""The endpoint that estimates a submission."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.operations.api.serializers import SubmissionSerializer, WaitingForSerializer
from apps.operations.requests import estimates
from trainops.http.asking import body_of, person


class EstimateSerializer(serializers.Serializer[Any]):
    """What a submission would do; nothing is submitted."""

    status = WaitingForSerializer(help_text="Why it would wait; SOON: it would start.")
    worker_ids = serializers.ListField(
        child=serializers.CharField(), help_text="Workers that can run it, busy or not."
    )
    num_earlier = serializers.IntegerField(
        help_text="Number of earlier completed operations of the recipe behind the medians."
    )
    seconds = serializers.FloatField(
        allow_null=True, help_text="Median time, scaled to the length of the config."
    )
    checkpoint_bytes = serializers.FloatField(
        allow_null=True, help_text="Median size of a checkpoint."
    )
    notes = serializers.ListField(
        child=serializers.CharField(), help_text="Notes on exactness, one sentence each."
    )


class EstimateView(APIView):
    @extend_schema(
        operation_id="operations_estimate",
        request=SubmissionSerializer,
        responses=EstimateSerializer,
    )
    def post(self, request: Request) -> Response:
        """Return where a submission could run, and its time and size by earlier operations."""
        wanted = body_of(request, SubmissionSerializer)
        given = {name: wanted[name] for name in ("kind", "config", "queue", "project")}
        found = estimates.estimate(**given, owner=person(request))
        return Response(EstimateSerializer(found).data)
