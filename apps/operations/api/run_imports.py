"""The address for runs of other tools."""

from typing import TYPE_CHECKING, TypedDict

from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.datasets.upload_view import FileFormView
from apps.operations.api.operations import answer
from apps.operations.api.serializers import OperationDetailSerializer
from apps.operations.models import MAX_NAME_LENGTH
from apps.operations.requests import run_imports
from apps.operations.requests.run_imports import RunFields
from trainops.http.admission import FORM_BYTES
from trainops.http.asking import body_of, person
from trainops.http.parsers import NotUsable, read_json
from trainops.http.serializers import StrictSerializer

if TYPE_CHECKING:
    from django.core.files.uploadedfile import UploadedFile

TOOLS = ("tensorboard", "mlflow", "wandb")


class RunImportFields(TypedDict):
    """The validated values of RunImportSerializer."""

    file: "UploadedFile[bytes]"
    run: RunFields


class RunSerializer(StrictSerializer):
    tool = serializers.ChoiceField(choices=TOOLS)
    run = serializers.CharField(max_length=200, help_text="Id or directory of the run there.")
    name = serializers.CharField(max_length=MAX_NAME_LENGTH)
    status = serializers.CharField(
        required=False, default="", allow_blank=True, max_length=40, help_text="Status there."
    )
    parameters = serializers.DictField(required=False, default=dict)
    tags = serializers.ListField(child=serializers.CharField(), required=False, default=list)
    started_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(required=False, allow_null=True, default=None)


class RunImportSerializer(StrictSerializer):
    file = serializers.FileField(
        allow_empty_file=True,
        help_text='Points, a line each: `["name", step, value, Unix time]`; a value may be "nan".',
    )
    run = serializers.CharField(
        max_length=FORM_BYTES,
        help_text="JSON text: `tool`, `run`, `name`, `started_at`; optional `finished_at`, "
        "`status`, `parameters`, `tags`.",
    )

    def validate_run(self, text: str) -> RunFields:
        try:
            given = read_json(text)
        except NotUsable as problem:
            raise serializers.ValidationError(str(problem)) from problem
        run = RunSerializer(data=given)
        run.is_valid(raise_exception=True)
        valid: RunFields = run.validated_data
        return valid


class ImportRunView(FileFormView):
    @extend_schema(
        operation_id="operations_import_run",
        request={"multipart/form-data": RunImportSerializer},
        responses={200: OperationDetailSerializer, 201: OperationDetailSerializer},
    )
    def post(self, request: Request) -> Response:
        """Create a finished operation from a run of another tool; 200 if it was there before."""
        wanted: RunImportFields = body_of(request, RunImportSerializer)
        operation, is_new = run_imports.import_run(wanted["run"], wanted["file"], person(request))
        address = reverse("api-operation", args=[operation.pk])
        status = 201 if is_new else 200
        return answer(operation.pk, request, status=status, headers={"Location": address})
