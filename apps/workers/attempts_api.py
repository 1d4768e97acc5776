"""Endpoints for workers without access to the database and the storage.

claim → restored → progress … checkpoints … → end; docs/workers.md has the protocol, and
examples/http_worker.py a worker that speaks it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from django.http import HttpResponse, HttpResponseRedirect
from django.http.response import FileResponse, HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from apps.datasets import services as datasets
from apps.operations import artifacts
from apps.operations.api.renderers import Bytes
from apps.operations.attempts import remote_attempts, remote_checks, remote_files
from apps.operations.attempts.ledger import Ledger
from apps.operations.attempts.remote_attempts import Directive, Report
from apps.operations.errors import NotAllowed, StorageUnavailable
from apps.operations.models import Operation
from apps.operations.placement import Device, Offer, Room
from apps.operations.scheduling import claims
from apps.workers import attempt_serializers as shapes
from apps.workers import registry, reports
from apps.workers.api import WorkersDoor
from apps.workers.serializers import VerdictSerializer
from trainops.http.asking import body_of, query_of
from trainops.http.envelope import EnvelopeRenderer
from trainops.http.numbers import whole_number
from trainops.kind import KINDS
from trainops.runtime.checkpoint.manifest import MANIFEST, CheckpointType

T = TypeVar("T")


class ClaimView(WorkersDoor):
    @extend_schema(
        operation_id="workers_claim",
        request=shapes.ClaimRequestSerializer,
        responses=shapes.ClaimAnswerSerializer,
    )
    def post(self, request: Request, worker_id: str) -> Response:
        """Take the best waiting operation that fits what the worker offers, if there is one.

        A worker that calls this counts as serving these kinds; it must have registered before.
        """
        wanted = body_of(request, shapes.ClaimRequestSerializer)
        worker = registry.asks_for_work(
            worker_id=worker_id, kinds=wanted["kinds"], labels=wanted["labels"]
        )
        claimed = None
        if registry.has_free_slot(worker):
            claimed = remote_attempts.claim(
                worker_id=worker_id, host=registry.remote_host(worker_id), offer=_offer(wanted)
            )
        return Response({"claimed": claimed and claimed.to_json()})


def _offer(wanted: Mapping[str, Any]) -> Offer:
    devices = [Device(each["id"], each["memory_bytes"]) for each in wanted["devices"]]
    return Offer(
        kinds=wanted["kinds"],
        labels=wanted["labels"],
        memory_bytes=wanted["memory_bytes"],
        disk_bytes=wanted["disk_bytes"],
        rooms=(Room(devices=devices, has_gpus=bool(devices) or wanted["has_gpus"]),),
    )


class AttemptDoor(WorkersDoor):
    """Calls about one attempt. 409 SUPERSEDED: it does not own the operation (any more)."""

    def owned(
        self, worker_id: str, operation_id: str, attempt: int, *, is_renewed: bool = True
    ) -> Operation:
        """Return the operation, and renew the attempt's lease unless it is to be killed.

        Not `is_renewed`: the caller does it, after it wrote down that the attempt goes on.
        """
        operation = remote_attempts.owned(
            worker_id=worker_id, operation_id=operation_id, attempt=attempt
        )
        registry.serves(worker_id=worker_id)
        if is_renewed:
            remote_attempts.renewed(operation)
        return operation

    def fenced(self, operation: Operation, call: Callable[[], T]) -> T:
        try:
            return call()
        except claims.Fenced:
            raise remote_attempts.superseded(operation.pk, operation.attempt) from None


class RestoredView(AttemptDoor):
    @extend_schema(
        operation_id="attempts_restored",
        request=shapes.RestoredSerializer,
        responses=shapes.DirectiveSerializer,
    )
    def post(self, request: Request, worker_id: str, operation_id: str, attempt: int) -> Response:
        """Report where the attempt starts, and how exactly it was restored; called once."""
        told = body_of(request, shapes.RestoredSerializer)
        operation = self.owned(worker_id, operation_id, attempt)
        return _answer(self.fenced(operation, lambda: remote_attempts.restored(operation, **told)))


class ProgressView(AttemptDoor):
    @extend_schema(
        operation_id="attempts_progress",
        request=shapes.ProgressSerializer,
        responses=shapes.DirectiveSerializer,
    )
    def post(self, request: Request, worker_id: str, operation_id: str, attempt: int) -> Response:
        """Report progress and renew the lease. The response holds the directive.

        `cancel` and `preempt`: save at the next safe point, then end. `kill`: end now.
        """
        told = body_of(request, shapes.ProgressSerializer)
        operation = self.owned(worker_id, operation_id, attempt, is_renewed=False)
        points = [(each["step"], each["at"], each["metrics"]) for each in told.pop("points")]
        report = Report(points=points, **told)
        return _answer(self.fenced(operation, lambda: remote_attempts.reported(operation, report)))


class OpenCheckpointView(AttemptDoor):
    @extend_schema(
        operation_id="attempts_checkpoint_open",
        request=shapes.OpenCheckpointSerializer,
        responses={201: shapes.DirectorySerializer},
    )
    def post(self, request: Request, worker_id: str, operation_id: str, attempt: int) -> Response:
        """Open the directory of a new checkpoint, to which its files are uploaded."""
        told = body_of(request, shapes.OpenCheckpointSerializer)
        operation = self.owned(worker_id, operation_id, attempt)
        name = remote_files.open_directory(
            operation, type=CheckpointType(told["type"]), step=told["step"]
        )
        return Response({"directory": name}, status=201)


class SendFileView(AttemptDoor):
    parser_classes: Sequence[type[BaseParser]] = ()

    @extend_schema(
        operation_id="attempts_checkpoint_file",
        request={"application/octet-stream": OpenApiTypes.BINARY},
        responses=shapes.FileSerializer,
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
        told = body_of(request, shapes.CommitSerializer)
        operation = self.owned(worker_id, operation_id, attempt)
        checkpoint = self.fenced(
            operation, lambda: remote_files.commit(operation, directory, **told)
        )
        remote_checks.begin(operation, checkpoint)
        answer = remote_attempts.directive(operation)
        return Response(
            {"checkpoint_id": checkpoint.pk, "directive": answer.directive, "reason": answer.reason}
        )


class ReadFileView(AttemptDoor):
    renderer_classes = (EnvelopeRenderer, Bytes)

    @extend_schema(
        operation_id="attempts_checkpoint_read",
        responses={
            (200, "application/octet-stream"): OpenApiResponse(OpenApiTypes.BINARY),
            302: OpenApiResponse(description="To the bucket that holds it."),
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
        told = body_of(request, shapes.DamagedSerializer)
        operation = self.owned(worker_id, operation_id, attempt)
        remote_attempts.damaged(operation, told.pop("checkpoint_id"), **told)
        return _answer(remote_attempts.directive(operation))


class InputView(AttemptDoor):
    renderer_classes = (EnvelopeRenderer, Bytes)

    @extend_schema(
        operation_id="attempts_input",
        responses={(200, "application/octet-stream"): OpenApiResponse(OpenApiTypes.BINARY)},
    )
    def get(
        self, request: Request, worker_id: str, operation_id: str, attempt: int, name: str
    ) -> FileResponse:
        """The Parquet file of a dataset that the operation reads."""
        query_of(request)
        operation = self.owned(worker_id, operation_id, attempt)
        engine = KINDS[operation.kind]
        allowed = engine.dataset_ids(engine.parse_config(operation.config))
        if name not in allowed:
            raise NotAllowed(
                "INPUT_NOT_READABLE", f"{name[:64]!r} is no dataset that it reads.", allowed=allowed
            )
        try:
            content = datasets.local_path(name).open("rb")
        except OSError as error:
            raise StorageUnavailable(error) from error
        return FileResponse(content, content_type="application/octet-stream")


class SpendingView(AttemptDoor):
    @extend_schema(
        operation_id="attempts_spending",
        request=shapes.SpendingSerializer,
        responses=shapes.DirectiveSerializer,
    )
    def post(self, request: Request, worker_id: str, operation_id: str, attempt: int) -> Response:
        """Record private releases in the ledger before they are made; durable on success."""
        told = body_of(request, shapes.SpendingSerializer)
        operation = self.owned(worker_id, operation_id, attempt, is_renewed=False)
        try:
            self.fenced(operation, lambda: Ledger(operation).spend(told["entries"]))
        except (TypeError, ValueError) as error:
            raise ValidationError({"entries": f"are no entries of the ledger: {error}"}) from error
        return _answer(remote_attempts.renewed(Operation.objects.get(pk=operation.pk)))


class EndView(AttemptDoor):
    @extend_schema(
        operation_id="attempts_end", request=shapes.EndSerializer, responses=VerdictSerializer
    )
    def post(self, request: Request, worker_id: str, operation_id: str, attempt: int) -> Response:
        """Report the outcome of the attempt; repeat the call until it succeeds."""
        told = body_of(request, shapes.EndSerializer)
        ended = reports.Ended(operation_id=operation_id, attempt=attempt, **told)
        (verdict,) = reports.conclude(worker_id=worker_id, ended=[ended])
        if not verdict.accepted:
            raise remote_attempts.superseded(operation_id, attempt)
        return Response(
            {
                "operation_id": operation_id,
                "attempt": attempt,
                "accepted": True,
                "reason": verdict.reason,
            }
        )


def _answer(directive: Directive) -> Response:
    return Response({"directive": directive.directive, "reason": directive.reason})
