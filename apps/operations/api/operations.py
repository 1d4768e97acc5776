"""Endpoints for operations: submit, list, look, cancel, kill, resume, delete."""

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
from apps.operations.api.rows import ROW_FIELDS, described_all, detail, rows_of
from apps.operations.api.serializers import (
    DeletionSerializer,
    EditSerializer,
    OperationDetailSerializer,
    OperationSerializer,
    ResumeRequestSerializer,
    ResumptionSerializer,
    SubmissionSerializer,
)
from apps.operations.api.sorted_pages import SortedPages
from apps.operations.errors import OperationNotFound
from apps.operations.filters import OperationQuery, narrowed
from apps.operations.lifecycle import State
from apps.operations.models import Operation
from apps.operations.requests import access, deletion, editing, services
from apps.operations.requests.access import Action
from trainops import progress
from trainops.http.asking import body_of, person, query_of
from trainops.http.envelope import OPTIONS
from trainops.http.etags import with_etag
from trainops.kind import KINDS

IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,120}")
KEY = OpenApiParameter(
    "Idempotency-Key",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="A repeated key returns the first operation.",
)


SERVED = frozenset({"kind", "owner"})  # criteria that have an index in the order of the list


class OperationsView(APIView):
    pagination_class = SortedPages
    ordering_fields = ("queued_at", "priority", "name")

    @extend_schema(
        operation_id="operations_list",
        parameters=[OperationQuery],
        responses=OperationSerializer(many=True),
    )
    @with_etag
    def get(self, request: Request) -> Response:
        """List operations, latest first."""
        query = query_of(request, OperationQuery, is_paged=True)
        operations = narrowed(Operation.objects.all(), query, request.user)
        given = {name for name, value in query.items() if value is not None}
        rows = narrowed(rows_of(*ROW_FIELDS), query, request.user) if given <= SERVED else None
        paginator = SortedPages(rows)
        page = paginator.paginate_queryset(operations, request, self)
        content = orjson.dumps(described_all(page, request.user), option=OPTIONS)
        return paginator.get_paginated_response(orjson.Fragment(content))

    @extend_schema(
        operation_id="operations_create",
        request=SubmissionSerializer,
        responses={202: OperationDetailSerializer},
        parameters=[KEY],
    )
    def post(self, request: Request) -> Response:
        """Submit an operation; `Location` is its address."""
        wanted = body_of(request, SubmissionSerializer)
        key = idempotency_key(request)
        operation = services.submit(**wanted, owner=person(request), idempotency_key=key)
        address = reverse("api-operation", args=[operation.pk])
        return answer(operation.pk, request, status=202, headers={"Location": address})


class OperationView(APIView):
    @extend_schema(operation_id="operations_get", responses=OperationDetailSerializer)
    @with_etag
    def get(self, request: Request, operation_id: str) -> Response:
        """Return an operation with all its fields."""
        return answer(operation_id, request)

    @extend_schema(
        operation_id="operations_edit",
        request=EditSerializer,
        responses=OperationDetailSerializer,
    )
    def patch(self, request: Request, operation_id: str) -> Response:
        """Rename, tag, annotate, archive or acknowledge it; running work is not affected."""
        changes = body_of(request, EditSerializer)
        revision = changes.pop("revision", None)
        access.require(services.get(operation_id), request.user, "edit")
        editing.edit(
            operation_id=operation_id, actor=person(request), changes=changes, revision=revision
        )
        return answer(operation_id, request)

    @extend_schema(operation_id="operations_delete", responses={200: DeletionSerializer})
    def delete(self, request: Request, operation_id: str) -> Response:
        """Delete an inactive operation with its checkpoints, metrics and log."""
        _allowed(operation_id, request, Action.DELETE)
        freed = deletion.delete(operation_id=operation_id, actor=person(request))
        return Response(
            {
                "message": f"Operation {operation_id} was deleted.",
                "num_checkpoints": freed.num_checkpoints,
                "freed_bytes": freed.freed_bytes,
            }
        )


STOPPING = {200: OperationDetailSerializer, 202: OperationDetailSerializer}


class CancelView(APIView):
    @extend_schema(operation_id="operations_cancel", request=None, responses=STOPPING)
    def post(self, request: Request, operation_id: str) -> Response:
        """Save a checkpoint at the next safe point, then stop. 200: it is already cancelled."""
        body_of(request)
        _allowed(operation_id, request, Action.CANCEL)
        stopped = services.cancel(operation_id=operation_id, actor=person(request))
        return answer(operation_id, request, status=_status(stopped))


class KillView(APIView):
    @extend_schema(operation_id="operations_kill", request=None, responses=STOPPING)
    def post(self, request: Request, operation_id: str) -> Response:
        """Stop immediately; the work since the last checkpoint is lost."""
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
        """Resume from the latest healthy checkpoint, or from a chosen one."""
        wanted = body_of(request, ResumeRequestSerializer)
        _allowed(operation_id, request, Action.RESUME)
        resumption = services.resume(
            operation_id=operation_id,
            actor=person(request),
            checkpoint_id=wanted["checkpoint_id"],
            accept_inexact=wanted["accept_inexact"],
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


def _allowed(operation_id: str, request: Request, action: Action) -> None:
    access.require(services.get(operation_id), request.user, action)


def answer(operation_id: str, request: Request, **how: Any) -> Response:
    found = detail(operation_id, request.user)
    if found is None:
        raise OperationNotFound(operation_id)
    return Response(found, **how)


def _status(stopped: Operation) -> int:
    return 200 if stopped.is_finished else 202


def _resumed_from(checkpoint: Checkpoint, operation: Operation) -> dict[str, object]:
    position = KINDS[operation.kind].position(checkpoint.state, checkpoint.step)
    return {
        "checkpoint_id": checkpoint.pk,
        "checkpoint_type": checkpoint.type,
        "created_at": checkpoint.created_at,
        "step": checkpoint.step,
        "unit": operation.unit,
        "place": position.text,
        "progress_percent": progress.percent(checkpoint.step, operation.total_steps),
        **position.counts,
    }


def _skipped(skipped: services.Skipped, operation: Operation) -> dict[str, object]:
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
        allowed = "1 to 120 printable ASCII characters without spaces"
        problem = f"{key[:60]!r} is not usable; allowed: {allowed}"
        raise ValidationError({"Idempotency-Key": problem})
    return key or ""
