"""Endpoints for the files of an operation."""

from django.http import HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.operations.api.renderers import Bytes
from apps.operations.api.serializers import ArtifactSerializer
from apps.operations.errors import CheckpointNotFound
from apps.operations.files import archives, artifacts
from apps.operations.filters import ArtifactQuery
from apps.operations.requests import services
from trainops.http.asking import person, query_of
from trainops.http.envelope import EnvelopeRenderer, Page


class ArtifactsView(APIView):
    @extend_schema(
        operation_id="operations_artifacts",
        parameters=[ArtifactQuery],
        responses=ArtifactSerializer(many=True),
    )
    def get(self, request: Request, operation_id: str) -> Response:
        """List the files of the final checkpoint, else of the latest."""
        query = query_of(request, ArtifactQuery)
        services.get(operation_id)
        checkpoint = artifacts.source(operation_id, query["checkpoint_id"])
        if checkpoint is None:
            return Response(Page([], 0))
        rows = [
            {
                "name": each.name,
                "size_bytes": each.size_bytes,
                "blake3": each.blake3,
                "checkpoint_id": checkpoint.pk,
                "checkpoint_type": checkpoint.type,
                "step": checkpoint.step,
                "url": _address(operation_id, each.name, checkpoint.pk),
            }
            for each in artifacts.listed(checkpoint)
        ]
        return Response(Page(rows, len(rows)))


class ArtifactView(APIView):
    renderer_classes = (EnvelopeRenderer, Bytes)

    @extend_schema(
        operation_id="operations_artifact",
        parameters=[ArtifactQuery],
        responses={
            (200, "application/octet-stream"): OpenApiResponse(OpenApiTypes.BINARY),
            302: OpenApiResponse(
                description="Redirect to the bucket; the URL is valid for one hour."
            ),
        },
    )
    def get(self, request: Request, operation_id: str, name: str) -> HttpResponseBase:
        """Download a file, verified against its digest before the first byte is sent.

        Where checkpoints are in a bucket, the answer leads there, and what was read is verified
        by the digest in the list.
        """
        query = query_of(request, ArtifactQuery)
        services.get(operation_id)
        checkpoint = artifacts.source(operation_id, query["checkpoint_id"])
        if checkpoint is None:
            raise CheckpointNotFound(operation_id)
        if (link := artifacts.link(checkpoint, name)) is not None:
            return HttpResponseRedirect(link)
        return artifacts.download(checkpoint, name).response()


class ArchiveView(APIView):
    renderer_classes = (EnvelopeRenderer, Bytes)

    @extend_schema(
        operation_id="operations_archive",
        responses={(200, "application/zip"): OpenApiResponse(OpenApiTypes.BINARY)},
    )
    def get(self, request: Request, operation_id: str) -> HttpResponseBase:
        """Download all files of an operation as a zip, written while it is sent.

        The files of the final checkpoint, else of the best and the latest one, each verified before
        its first byte is sent; exports of the last day; `operation.json`, `log.txt` and
        `points.csv`. One at a time for each user. Damaged files cut it off.
        """
        query_of(request)
        operation = services.get(operation_id)
        archive = archives.OperationArchive(operation, person=person(request).get_username())
        return archive.response()


def _address(operation_id: str, name: str, checkpoint_id: str) -> str:
    path = reverse("api-operation-artifact", args=[operation_id, name])
    return f"{path}?checkpoint_id={checkpoint_id}"
