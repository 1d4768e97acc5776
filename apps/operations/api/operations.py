"""The doors for operations: submit, list, look, cancel, kill, resume, fork, delete."""

import re
from typing import Any

import orjson
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.checkpoints.models import Checkpoint
from apps.checkpoints.serializers import progress_percent
from apps.operations.errors import OperationNotFound
from apps.operations.filters import OperationQuery, narrowed
from apps.operations.lifecycle import State
from apps.operations.models import Operation
from apps.operations.requests import access, forking, services
from apps.operations.requests.access import Action
from apps.operations.rows import ROW_FIELDS, described_all, detail, rows_of
from apps.operations.serializers import (
    DeletionSerializer,
    ForkSerializer,
    OperationDetailSerializer,
    OperationSerializer,
    ResumeRequestSerializer,
    ResumptionSerializer,
    SubmissionSerializer,
)
from trainops.http.asking import body_of, person, query_of
from trainops.http.envelope import OPTIONS
from trainops.http.pagination import NewestFirst
from trainops.kind import KINDS

IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,120}")
KEY = OpenApiParameter(
    "Idempotency-Key",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="The same key again answers with the first operation.",
)


class OperationsView(APIView):
    pagination_class = NewestFirst
    ordering_fields = ("queued_at", "priority", "name")

    @extend_schema(
        operation_id="operations_list",
        parameters=[OperationQuery],
        responses=OperationSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """A page of operations, newest first."""
        query = query_of(request, OperationQuery, is_paged=True)
        operations = narrowed(Operation.objects.all(), query, request.user)
        paginator = NewestFirst()
        page = paginator.paginate_queryset(rows_of(operations, ROW_FIELDS), request, self)
        rows = orjson.dumps(described_all(page, request.user), option=OPTIONS)
        return paginator.get_paginated_response(orjson.Fragment(rows))

    @extend_schema(
        operation_id="operations_create",
        request=SubmissionSerializer,
        responses={202: OperationDetailSerializer},
        parameters=[KEY],
    )
    def post(self, request: Request) -> Response:
        """Submit an operation. `Location` is its address; a worker takes it when it is its turn."""
        wanted = body_of(request, SubmissionSerializer)
        key = idempotency_key(request)
        operation = services.submit(**wanted, owner=person(request), idempotency_key=key)
        address = reverse("api-operation", args=[operation.pk])
        return answer(operation.pk, request, status=202, headers={"Location": address})


class OperationView(APIView):
    @extend_schema(operation_id="operations_get", responses=OperationDetailSerializer)
    def get(self, request: Request, operation_id: str) -> Response:
        """One operation with everything there is to say about it."""
        return answer(operation_id, request)

    @extend_schema(operation_id="operations_delete", responses={200: DeletionSerializer})
    def delete(self, request: Request, operation_id: str) -> Response:
        """Delete it with its checkpoints, points and log. Not while it waits or runs."""
        _allowed(operation_id, request, Action.DELETE)
        freed = services.delete(operation_id=operation_id, actor=person(request))
        return Response(
            {
                "message": f"Operation {operation_id} is deleted.",
                "num_checkpoints": freed.num_checkpoints,
                "freed_bytes": freed.freed_bytes,
            }
        )


STOPPING = {200: OperationDetailSerializer, 202: OperationDetailSerializer}


class CancelView(APIView):
    @extend_schema(operation_id="operations_cancel", request=None, responses=STOPPING)
    def post(self, request: Request, operation_id: str) -> Response:
        """Ask it to save a checkpoint at its next safe point, then stop. 200: it is cancelled."""
        body_of(request)
        _allowed(operation_id, request, Action.CANCEL)
        stopped = services.cancel(operation_id=operation_id, actor=person(request))
        return answer(operation_id, request, status=_status(stopped))


class KillView(APIView):
    @extend_schema(operation_id="operations_kill", request=None, responses=STOPPING)
    def post(self, request: Request, operation_id: str) -> Response:
        """Stop it now; its last checkpoint stands, the work since then is lost."""
        body_of(request)
        _allowed(operation_id, request, Action.KILL)
        stopped = services.kill(operation_id=operation_id, actor=person(request))
        return answer(operation_id, request, status=_status(stopped))


class ResumeView(APIView):
    @extend_schema(
        operation_id="operations_resume",
        request=ResumeRequestSerializer,
        responses=ResumptionSerializer,
    )
    def post(self, request: Request, operation_id: str) -> Response:
        """Continue it from its newest healthy checkpoint, or from a chosen one."""
        wanted = body_of(request, ResumeRequestSerializer)
        _allowed(operation_id, request, Action.RESUME)
        resumption = services.resume(
            operation_id=operation_id, actor=person(request), checkpoint_id=wanted["checkpoint_id"]
        )
        operation = resumption.operation
        return Response(
            {
                "operation_id": operation_id,
                "status": State.RESUMING,  # what this call made it; a worker may have it already
                "resumed_from": _resumed_from(resumption.checkpoint, operation),
                "skipped": [_skipped(each, operation) for each in resumption.skipped],
                "message": resumption.message,
            }
        )


class ForkView(APIView):
    @extend_schema(
        operation_id="operations_fork",
        request=ForkSerializer,
        responses={202: OperationDetailSerializer},
        parameters=[KEY],
    )
    def post(self, request: Request, operation_id: str) -> Response:
        """Submit a new operation that goes on from one of its checkpoints.

        Only what changes nothing that the checkpoint is made of may differ in its config.
        """
        wanted = body_of(request, ForkSerializer)
        forked = forking.fork(
            operation_id=operation_id,
            owner=person(request),
            idempotency_key=idempotency_key(request),
            **wanted,
        )
        address = reverse("api-operation", args=[forked.pk])
        return answer(forked.pk, request, status=202, headers={"Location": address})


def _allowed(operation_id: str, request: Request, action: Action) -> None:
    access.require(services.get(operation_id), request.user, action)


def answer(operation_id: str, request: Request, **how: Any) -> Response:
    found = detail(operation_id, request.user)
    if found is None:
        raise OperationNotFound(operation_id)
    return Response(found, **how)


def _status(stopped: Operation) -> int:
    return 200 if stopped.is_finished else 202


def _resumed_from(checkpoint: Checkpoint, operation: Operation) -> dict[str, Any]:
    position = KINDS[operation.kind].position(checkpoint.state, checkpoint.step)
    return {
        "checkpoint_id": checkpoint.pk,
        "checkpoint_type": checkpoint.type,
        "created_at": checkpoint.created_at,
        "step": checkpoint.step,
        "unit": operation.unit,
        "place": position.text,
        "progress_percent": progress_percent(checkpoint.step, operation.total_steps),
        **position.counts,
    }


def _skipped(skipped: services.Skipped, operation: Operation) -> dict[str, Any]:
    checkpoint, problem = skipped.checkpoint, skipped.problem
    return {
        "checkpoint_id": checkpoint.pk,
        "step": checkpoint.step,
        "place": services.position(checkpoint, operation),
        "problem": problem.findings,
        "missing_artifacts": problem.missing,
        "altered_artifacts": problem.altered,
    }


def idempotency_key(request: Request) -> str:
    key = request.headers.get("Idempotency-Key")
    if key is not None and not IDEMPOTENCY_KEY.fullmatch(key):
        problem = f"{key[:60]!r} is not usable; 1 to 120 printable ASCII characters without spaces"
        raise ValidationError({"Idempotency-Key": problem})
    return key or ""
