"""What a recipe logged besides numbers."""

import json
from typing import Any

from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.operations import media_queries
from apps.operations.api.renderers import Png, Wav
from apps.operations.requests import services
from trainops.http.asking import query_of
from trainops.http.envelope import EnvelopeRenderer
from trainops.http.etags import with_etag
from trainops.http.serializers import StrictSerializer
from trainops.media.items import CONTENT_TYPES, TYPES
from trainops.media.limits import MAX_NAME


class MediaQuery(StrictSerializer):
    name = serializers.CharField(
        required=False, max_length=MAX_NAME, trim_whitespace=False, help_text="Only this name."
    )


class MediaItemSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField(help_text="Id for the content.")
    caption = serializers.CharField(allow_blank=True)
    num_bytes = serializers.IntegerField()


class MediaStepSerializer(serializers.Serializer[Any]):
    step = serializers.IntegerField()
    attempt = serializers.IntegerField()
    type = serializers.ChoiceField(choices=TYPES)
    items = MediaItemSerializer(many=True)


class NamedMediaSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    steps = MediaStepSerializer(many=True)


class MediaView(APIView):
    @extend_schema(
        operation_id="operations_media",
        parameters=[MediaQuery],
        responses=NamedMediaSerializer(many=True),
    )
    @with_etag
    def get(self, request: Request, operation_id: str) -> Response:
        """List images, histograms, tables, confusion matrices and audio by name and step.

        Those that a resume discarded are left out.
        """
        query = query_of(request, MediaQuery)
        services.get(operation_id)
        return Response(media_queries.listed(operation_id, query.get("name")))


class MediaContentView(APIView):
    renderer_classes = (EnvelopeRenderer, Png, Wav)

    @extend_schema(
        operation_id="operations_media_content",
        responses={
            (200, "image/png"): OpenApiResponse(OpenApiTypes.BINARY),
            (200, "audio/wav"): OpenApiResponse(OpenApiTypes.BINARY),
            (200, "application/json"): OpenApiResponse(OpenApiTypes.OBJECT),
        },
    )
    def get(self, request: Request, operation_id: str, media_id: int) -> HttpResponseBase:
        """Return an item: an image as PNG, audio as WAV, all others as JSON.

        A request for an image or audio with a Range header of one range gets that part.
        """
        query_of(request)
        services.get(operation_id)
        row = media_queries.found(operation_id, media_id)
        if row.type not in CONTENT_TYPES:
            return Response(json.loads(bytes(row.content)))
        return media_queries.response(row, request.headers.get("Range", ""))
