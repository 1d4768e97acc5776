"""Endpoints for workers without access to the database and the storage.

claim → restored → progress … checkpoints … → end; docs/workers.md has the protocol, and
examples/http_worker.py a worker that speaks it.
"""

from collections.abc import Callable
from datetime import date
from typing import Any, TypedDict, TypeVar

from django.http.response import FileResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from apps.datasets import services as datasets
from apps.operations.api.renderers import Bytes
from apps.operations.attempts import (
    remote_attempts,
    remote_claims,
    remote_ledgers,
)
from apps.operations.attempts.remote_attempts import RemoteDirective, RemoteProgress
from apps.operations.errors import NotAllowed, StorageUnavailable
from apps.operations.lifecycle import Reason
from apps.operations.models import Operation
from apps.operations.placement import Device, FreeSlot, Offer
from apps.operations.scheduling import claims
from apps.workers import attempt_serializers as shapes
from apps.workers import fleet, registry, reports
from apps.workers.api import WorkersDoor
from apps.workers.serializers import VerdictSerializer
from trainops import log_format
from trainops.http.asking import body_of, query_of
from trainops.http.deprecation import Deprecated
from trainops.http.envelope import EnvelopeRenderer
from trainops.kind import KINDS
from trainops.media.errors import MediaError
from trainops.process.protocol import MediaLogged

T = TypeVar("T")


class ClaimView(WorkersDoor):
    @extend_schema(
        operation_id="workers_claim",
        request=shapes.ClaimRequestSerializer,
        responses=shapes.ClaimAnswerSerializer,
    )
    def post(self, request: Request, worker_id: str) -> Response:
        """Claim the best waiting operation that fits the worker, if there is one.

        A worker that calls this counts as serving these kinds; it must have registered before.
        """
        wanted: ClaimRequest = body_of(request, shapes.ClaimRequestSerializer)
        worker = registry.asks_for_work(
            worker_id=worker_id,
            kinds=wanted["kinds"],
            labels=wanted["labels"],
            dataset_problem=remote_claims.DATASETS.problem(),
        )
        claimed = None
        if registry.has_free_slot(worker):
            claimed = remote_claims.claim(
                worker_id=worker_id,
                host=registry.remote_host(worker_id),
                offer=_offer(wanted, fleet.seconds_left(worker)),
            )
        return Response({"claimed": claimed and claimed.to_json()})


class OfferedDevice(TypedDict):
    """The validated values of DeviceSerializer."""

    id: str
    memory_bytes: int


class ClaimRequest(TypedDict):
    """The validated values of ClaimRequestSerializer."""

    kinds: list[str]
    labels: list[str]
    memory_bytes: int
    disk_bytes: int
    devices: list[OfferedDevice]
    has_gpus: bool


def _offer(wanted: ClaimRequest, seconds_left: float | None) -> Offer:
    devices = [Device(each["id"], each["memory_bytes"]) for each in wanted["devices"]]
    return Offer(
        kinds=wanted["kinds"],
        labels=wanted["labels"],
        memory_bytes=wanted["memory_bytes"],
        disk_bytes=wanted["disk_bytes"],
        free_slots=(FreeSlot(devices=devices, has_gpus=bool(devices) or wanted["has_gpus"]),),
        seconds_left=seconds_left,
    )


class AttemptDoor(WorkersDoor):
    """Calls about one attempt. 409 SUPERSEDED: it does not own the operation (any more)."""

    def initial(self, request: Request, *args: object, **kwargs: Any) -> None:
        log_format.also(operation=kwargs["operation_id"], attempt=kwargs["attempt"])
        super().initial(request, *args, **kwargs)

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
        body = body_of(request, shapes.RestoredSerializer)
        operation = self.owned(worker_id, operation_id, attempt)
        directive = self.fenced(operation, lambda: remote_attempts.restored(operation, **body))
        return answer(worker_id, directive)


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
        body = body_of(request, shapes.ProgressSerializer)
        operation = self.owned(worker_id, operation_id, attempt, is_renewed=False)
        points = [(each["step"], each["at"], each["metrics"]) for each in body.pop("points")]
        report = RemoteProgress(points=points, **body)
        directive = self.fenced(operation, lambda: remote_attempts.reported(operation, report))
        return answer(worker_id, directive)


class AttemptMediaView(AttemptDoor):
    @extend_schema(
        operation_id="attempts_media",
        request=shapes.MediaSerializer,
        responses=shapes.DirectiveSerializer,
    )
    def post(self, request: Request, worker_id: str, operation_id: str, attempt: int) -> Response:
        """Store what the recipe logged besides numbers, before the progress of its step.

        The call may be repeated. An item beyond the limits of the operation is left out, with a
        line in the log.
        """
        body = body_of(request, shapes.MediaSerializer)
        operation = self.owned(worker_id, operation_id, attempt, is_renewed=False)
        messages = [MediaLogged(**{**each, "at": each["at"].timestamp()}) for each in body["items"]]
        try:
            found = self.fenced(operation, lambda: remote_attempts.logged(operation, messages))
        except MediaError as error:
            raise ValidationError({"items": str(error)}) from error
        return answer(worker_id, found)


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
                "INPUT_NOT_READABLE", f"{name[:64]!r} is not one of its datasets.", allowed=allowed
            )
        try:
            content = datasets.local_path(name).open("rb")
        except OSError as error:
            raise StorageUnavailable(error) from error
        return FileResponse(content, content_type="application/octet-stream")


class LedgerView(AttemptDoor):
    append = staticmethod(remote_ledgers.append)

    @extend_schema(
        operation_id="attempts_ledger",
        request=shapes.LedgerSerializer,
        responses=shapes.DirectiveSerializer,
    )
    def post(self, request: Request, worker_id: str, operation_id: str, attempt: int) -> Response:
        """Append entries to the ledger before what they describe happens; durable on success."""
        body = body_of(request, shapes.LedgerSerializer)
        operation = self.owned(worker_id, operation_id, attempt, is_renewed=False)
        try:
            self.fenced(operation, lambda: self.append(operation, body["entries"]))
        except ValueError as error:
            raise ValidationError({"entries": f"invalid ledger entries: {error}"}) from error
        renewed = remote_attempts.renewed(Operation.objects.get(pk=operation.pk))
        return answer(worker_id, renewed)


class SpendingView(Deprecated, LedgerView):
    deprecated_on, sunset_on = date(2026, 11, 26), date(2027, 12, 1)
    append = staticmethod(remote_ledgers.append_older)

    @extend_schema(
        operation_id="attempts_spending",
        request=shapes.SpendingSerializer,
        responses=shapes.DirectiveSerializer,
        deprecated=True,
    )
    def post(self, request: Request, worker_id: str, operation_id: str, attempt: int) -> Response:
        """Append entries in the shape of older workers; deprecated alias of `ledger`."""
        return super().post(request, worker_id, operation_id, attempt)


class EndView(AttemptDoor):
    @extend_schema(
        operation_id="attempts_end", request=shapes.EndSerializer, responses=VerdictSerializer
    )
    def post(self, request: Request, worker_id: str, operation_id: str, attempt: int) -> Response:
        """Report the outcome of the attempt; repeat the call until it succeeds."""
        body = body_of(request, shapes.EndSerializer)
        ended = reports.Ended(operation_id=operation_id, attempt=attempt, **body)
        (verdict,) = reports.finalize(worker_id=worker_id, ended=[ended])
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


def obeyed(worker_id: str, directive: RemoteDirective) -> RemoteDirective:
    """Return the directive; a worker whose time ends is to save and hand back instead of go on."""
    if directive.directive == remote_attempts.PROCEED and fleet.is_ending(worker_id):
        return RemoteDirective("preempt", Reason.SHUTDOWN)
    return directive


def answer(worker_id: str, directive: RemoteDirective) -> Response:
    directive = obeyed(worker_id, directive)
    return Response({"directive": directive.directive, "reason": directive.reason})
