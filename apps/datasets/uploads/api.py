"""Endpoints of uploads that continue: create, receive parts, finish.

HEAD, PATCH and DELETE follow version 1.0 of the tus protocol.
"""

from typing import Any, cast

from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import UnsupportedMediaType, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.datasets.models import Upload
from apps.datasets.serializers import DatasetSerializer
from apps.datasets.tables.options import TableOptions
from apps.datasets.uploads import services
from apps.datasets.uploads.serializers import MAX_SIZE, NewUploadSerializer, OpenUploadSerializer
from trainops.http.asking import body_of, person, query_of
from trainops.http.numbers import whole_number

PART_TYPE = "application/offset+octet-stream"
PROTOCOL = {"Tus-Resumable": "1.0.0"}


class UploadsView(APIView):
    @extend_schema(operation_id="uploads_list", responses=OpenUploadSerializer(many=True))
    def get(self, request: Request) -> Response:
        """The user's own uploads that have not expired, newest first."""
        query_of(request)
        rows = Upload.objects.filter(owner=person(request))
        return Response(OpenUploadSerializer(rows, many=True).data)

    @extend_schema(
        operation_id="uploads_create",
        request=NewUploadSerializer,
        responses={201: OpenUploadSerializer},
    )
    def post(self, request: Request) -> Response:
        """Create an upload, to which parts of the file are sent. It expires 24 hours after the
        latest part."""
        body = body_of(request, NewUploadSerializer)
        options = TableOptions(
            encoding=body.pop("encoding"),
            delimiter=body.pop("delimiter"),
            columns=body.pop("columns", {}),
        )
        upload = services.create(owner=person(request), options=options, **body)
        headers = {"Location": reverse("api-upload", args=[upload.pk])}
        return Response(OpenUploadSerializer(upload).data, status=201, headers=headers)


class UploadView(APIView):
    @extend_schema(operation_id="uploads_get", responses=OpenUploadSerializer)
    def get(self, request: Request, upload_id: str) -> Response:
        """One upload; the headers Upload-Offset and Upload-Length also answer HEAD."""
        query_of(request)
        upload = services.get(upload_id, owner=person(request))
        data = OpenUploadSerializer(upload).data
        headers = {"Upload-Offset": str(data["offset"]), "Upload-Length": str(upload.size_bytes)}
        return Response(data, headers=headers | PROTOCOL)

    @extend_schema(
        operation_id="uploads_send",
        request={PART_TYPE: OpenApiTypes.BINARY},
        responses={204: None},
        parameters=[
            OpenApiParameter(
                "Upload-Offset",
                OpenApiTypes.INT64,
                OpenApiParameter.HEADER,
                required=True,
                description="Number of bytes received before this part.",
            )
        ],
    )
    def patch(self, request: Request, upload_id: str) -> Response:
        """Append a part of the file at Upload-Offset; the response has the next one.

        Another offset is a conflict, whose details contain the right one. Of a part that breaks
        off, the bytes that arrived are kept.
        """
        content = cast(Any, request._request)
        if content.content_type != PART_TYPE:
            raise UnsupportedMediaType(content.content_type, f"Content-Type: allowed: {PART_TYPE}")
        offset = services.append(
            upload_id,
            owner=person(request),
            offset=_number(request, "Upload-Offset"),
            num_bytes=_number(request, "Content-Length"),
            content=content,
        )
        return Response(status=204, headers={"Upload-Offset": str(offset)} | PROTOCOL)

    @extend_schema(operation_id="uploads_delete", responses={204: None})
    def delete(self, request: Request, upload_id: str) -> Response:
        """Delete an upload and what was received."""
        services.discard(upload_id, owner=person(request))
        return Response(status=204, headers=PROTOCOL)


class FinishView(APIView):
    @extend_schema(
        operation_id="uploads_finish",
        request=None,
        responses={201: DatasetSerializer, 200: DatasetSerializer},
    )
    def post(self, request: Request, upload_id: str) -> Response:
        """Verify the digest, read the file and store it as a dataset.

        Returns 201 for a new dataset, 200 if it exists already. A file that is refused is deleted.
        """
        dataset, is_new = services.finish(upload_id, owner=person(request))
        return Response(
            DatasetSerializer(dataset).data,
            status=201 if is_new else 200,
            headers={"Location": reverse("api-dataset", args=[dataset.pk])},
        )


def _number(request: Request, header: str) -> int:
    """Return the value of a header. Raises ValidationError."""
    given = request.headers.get(header, "")
    number = whole_number(given, 0, MAX_SIZE)
    if number is None:
        raise ValidationError({header: f"got {given[:40]!r}; allowed: whole numbers from 0"})
    return number
