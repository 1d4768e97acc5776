"""Endpoints for files of other tools: start an operation from one, export a checkpoint as one."""

from typing import TYPE_CHECKING, NotRequired, TypedDict

from django.http import FileResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.checkpoints.models import BEST, LATEST
from apps.datasets.storage import workspace
from apps.datasets.upload_view import FileFormView
from apps.operations.api.operations import answer
from apps.operations.api.renderers import Bytes
from apps.operations.api.serializers import OperationDetailSerializer, SubmissionSerializer
from apps.operations.errors import CheckpointNotFound
from apps.operations.files import artifacts, exchange, exports
from apps.operations.filters import ExportQuery
from apps.operations.requests import services
from apps.operations.requests.initial_checkpoints import Import
from trainops.http.admission import FORM_BYTES
from trainops.http.asking import body_of, person, query_of
from trainops.http.envelope import EnvelopeRenderer
from trainops.http.parsers import NotUsable, read_json
from trainops.http.serializers import StrictSerializer
from trainops.plain import Config

if TYPE_CHECKING:
    from django.core.files.uploadedfile import UploadedFile

DIGEST_SUFFIX, MAX_DIGEST = ".sha256", 8192  # of the file beside the file; characters


class SubmissionFields(TypedDict):
    """The validated values of SubmissionSerializer."""

    kind: str
    config: Config
    name: str
    tags: list[str]
    priority: int
    queue: str
    project: str


class ImportFields(TypedDict):
    """The validated values of ImportSerializer."""

    file: "UploadedFile[bytes]"
    digest: NotRequired[str]
    operation: SubmissionFields


class ImportSerializer(StrictSerializer):
    file = serializers.FileField(
        max_length=1000,
        help_text="Checkpoint of the other tool of the kind, model weights, or a zip of a "
        "checkpoint directory.",
    )
    digest = serializers.CharField(
        required=False,
        max_length=MAX_DIGEST,
        help_text="Content of the .sha256 file, if available; verified first.",
    )
    operation = serializers.CharField(
        max_length=FORM_BYTES, help_text="Body of a submission, as JSON text."
    )

    def validate_operation(self, text: str) -> SubmissionFields:
        try:
            given = read_json(text)
        except NotUsable as problem:
            raise serializers.ValidationError(str(problem)) from problem
        submission = SubmissionSerializer(data=given)
        submission.is_valid(raise_exception=True)
        valid: SubmissionFields = submission.validated_data
        return valid


class ImportView(FileFormView):
    @extend_schema(
        operation_id="operations_import",
        request={"multipart/form-data": ImportSerializer},
        responses={202: OperationDetailSerializer},
    )
    def post(self, request: Request) -> Response:
        """Submit an operation that starts from a file of another tool; see its events for details.

        Where its optimizer, schedule or position do not fit, training starts with its weights.
        """
        wanted: ImportFields = body_of(request, ImportSerializer)
        upload = wanted["file"]
        with workspace() as directory:
            path = directory / "file.ckpt"
            with path.open("xb") as file:
                for chunk in upload.chunks():
                    file.write(chunk)
            if "digest" in wanted:
                path.with_name(f"{path.name}{DIGEST_SUFFIX}").write_text(wanted["digest"])
            operation = services.submit(
                **wanted["operation"],
                owner=person(request),
                initial_checkpoint=Import(path, upload.name or ""),
            )
        address = reverse("api-operation", args=[operation.pk])
        return answer(operation.pk, request, status=202, headers={"Location": address})


class ExportView(APIView):
    renderer_classes = (EnvelopeRenderer, Bytes)

    @extend_schema(
        operation_id="operations_export",
        parameters=[ExportQuery],
        responses={
            (200, kind): OpenApiResponse(OpenApiTypes.BINARY)
            for kind in ("application/octet-stream", "application/zip")  # the latter if packed
        },
    )
    def get(self, request: Request, operation_id: str) -> HttpResponseBase:
        """Export a checkpoint as a file of the other tool of its kind."""
        query = query_of(request, ExportQuery)
        operation, chosen = services.get(operation_id), query["checkpoint_id"]
        holds_best = exchange.holds_best(operation.kind)  # the newest checkpoint, too
        which = query["which"] or ("last" if holds_best else "")
        if not chosen:
            is_best = which == "best" and not holds_best
            chosen = BEST if is_best else LATEST if which else ""
        checkpoint = artifacts.source(operation_id, chosen)
        if checkpoint is None:
            raise CheckpointNotFound(operation_id)
        exported = exports.export(
            checkpoint,
            person=person(request).get_username(),
            which=which or "last",
            agent=query["agent"],
            is_packed=query["packed"],
        )
        response = FileResponse(exported.file, as_attachment=True, filename=exported.name)
        response["X-Checkpoint"] = f"{checkpoint.pk}; {checkpoint}"
        if exported.digest:  # the other tool of its kind has it beside the file
            response["X-Digest"] = exported.digest
        return response
