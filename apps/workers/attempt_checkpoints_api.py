"""Endpoints for the checkpoints of attempts over HTTP: read, upload, commit, report as damaged."""

from collections.abc import Sequence
from typing import Any, cast

from django.http import HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from apps.operations.api.renderers import Bytes
from apps.operations.attempts import (
    remote_attempts,
    remote_checks,
    remote_commits,
    remote_files,
)
from apps.operations.files import artifacts
from apps.workers import attempt_serializers as shapes
from apps.workers.attempts_api import AttemptDoor, answer, obeyed
from trainops.http.asking import body_of, query_of
from trainops.http.envelope import EnvelopeRenderer
from trainops.http.numbers import whole_number
from trainops.runtime.checkpoint.manifest import MANIFEST, CheckpointType


class OpenCheckpointView(AttemptDoor):
    @extend_schema(
        operation_id="attempts_checkpoint_open",
        request=shapes.OpenCheckpointSerializer,
        responses={201: shapes.DirectorySerializer},
    )
    def post(self, request: Request, worker_id: str, operation_id: str, attempt: int) -> Response:
        """Open the directory of a new checkpoint, to which its files are uploaded."""
        body = body_of(request, shapes.OpenCheckpointSerializer)
        operation = self.owned(worker_id, operation_id, attempt)
        name = remote_files.open_directory(
            operation, type=CheckpointType(body["type"]), step=body["step"]
        )
        return Response({"directory": name}, status=201)


class SendFileView(AttemptDoor):
    parser_classes: Sequence[type[BaseParser]] = ()

    @extend_schema(
        operation_id="attempts_checkpoint_file",
        request={"application/octet-stream": OpenApiTypes.BINARY},
        responses=shapes.StoredFileSerializer,
    )
    def put(
        self, request: Request, worker_id: str, operation_id: str, attempt: int, directory: str,
        name: str,
    ) -> Response:  # fmt: skip
        """Upload one file of a checkpoint, with its Content-Length; returns its digest."""
        operation = self.owned(worker_id, operation_id, attempt)
        length = whole_number(request.META.get("CONTENT_LENGTH") or "", 0, 10**18)
        if length is None:
            raise ValidationError({"Content-Length": "is required: the number of bytes"})
        content = cast(Any, request._request)
        received = self.fenced(
            operation,
            lambda: remote_files.receive(operation, directory, name, content, size_bytes=length),
        )
        return Response(
            {"name": received.name, "size_bytes": received.size_bytes, "blake3": received.blake3,
             "home": ""}
        )  # fmt: skip


class CommitView(AttemptDoor):
    @extend_schema(
        operation_id="attempts_checkpoint_commit",
        request=shapes.CommitSerializer,
        responses=shapes.CommittedSerializer,
    )
    def post(
        self, request: Request, worker_id: str, operation_id: str, attempt: int, directory: str
    ) -> Response:
        """Verify the files and commit the checkpoint, which does not exist before that."""
        body = body_of(request, shapes.CommitSerializer)
        operation = self.owned(worker_id, operation_id, attempt)
        checkpoint = self.fenced(
            operation, lambda: remote_commits.commit(operation, directory, **body)
        )
        remote_checks.begin(operation, checkpoint)
        directive = obeyed(worker_id, remote_attempts.directive(operation))
        return Response(
            {
                "checkpoint_id": checkpoint.pk,
                "directive": directive.directive,
                "reason": directive.reason,
            }
        )


class ReadFileView(AttemptDoor):
    renderer_classes = (EnvelopeRenderer, Bytes)

    @extend_schema(
        operation_id="attempts_checkpoint_read",
        responses={
            (200, "application/octet-stream"): OpenApiResponse(OpenApiTypes.BINARY),
            302: OpenApiResponse(description="Redirect to the bucket."),
        },
    )
    def get(
        self, request: Request, worker_id: str, operation_id: str, attempt: int,
        checkpoint_id: str, name: str,
    ) -> HttpResponseBase:  # fmt: skip
        """One file of a checkpoint that the attempt starts from, verified before it is sent.

        manifest.json is one of them; its BLAKE3 is `manifest_digest`.
        """
        query_of(request)
        operation = self.owned(worker_id, operation_id, attempt)
        checkpoint = remote_attempts.readable(operation, checkpoint_id)
        if name == MANIFEST:
            content = artifacts.manifest(checkpoint)
            return HttpResponse(content, content_type="application/octet-stream")
        if (link := artifacts.link(checkpoint, name)) is not None:
            return HttpResponseRedirect(link)
        return artifacts.download(checkpoint, name).response()


class DamagedView(AttemptDoor):
    @extend_schema(
        operation_id="attempts_checkpoint_damaged",
        request=shapes.DamagedSerializer,
        responses=shapes.DirectiveSerializer,
    )
    def post(self, request: Request, worker_id: str, operation_id: str, attempt: int) -> Response:
        """Report a damaged download; the checkpoint is marked if the server's copy is damaged."""
        body = body_of(request, shapes.DamagedSerializer)
        operation = self.owned(worker_id, operation_id, attempt)
        remote_attempts.damaged(operation, body.pop("checkpoint_id"), **body)
        return answer(worker_id, remote_attempts.directive(operation))
