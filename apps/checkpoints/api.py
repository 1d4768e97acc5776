"""Endpoints for the whole checkpoint store: its contents and its cleanup.

Endpoints that change the checkpoints of one operation check the state of that operation first;
they are in `apps.operations.api.checkpoints`.
"""

from django.conf import settings
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.checkpoints import cleaning
from apps.checkpoints.criteria import wanted
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.serializers import (
    CheckpointQuery,
    CheckpointSerializer,
    CleanUpRequestSerializer,
    CleanUpSerializer,
    described,
    rows_of,
)
from apps.checkpoints.services import Freed
from apps.checkpoints.signatures import SignatureChecks
from trainops.errors import DomainError
from trainops.http.asking import body_of, person, query_of
from trainops.http.pagination import NewestFirstCounted
from trainops.http.permissions import IsAdmin


class CheckpointsView(APIView):
    pagination_class = NewestFirstCounted
    ordering_fields = ("step", "artifacts_size_bytes")

    @extend_schema(
        operation_id="checkpoints_list",
        parameters=[CheckpointQuery],
        responses=CheckpointSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """List checkpoints, latest first, with their number."""
        query = query_of(request, CheckpointQuery, is_paged=True)
        rows = rows_of(Checkpoint.objects.filter(wanted(query)))
        paginator = NewestFirstCounted()
        page = paginator.paginate_queryset(rows, request, self)
        checks = SignatureChecks()
        return paginator.get_paginated_response([described(row, checks) for row in page])


class CleanUpView(APIView):
    permission_classes = (IsAdmin,)

    @extend_schema(
        operation_id="checkpoints_cleanup",
        request=CleanUpRequestSerializer,
        responses=CleanUpSerializer,
    )
    def post(self, request: Request) -> Response:
        """Delete old checkpoints of inactive operations, and files without a database row."""
        asked = body_of(request, CleanUpRequestSerializer)
        try:
            freed = cleaning.clean_up(actor=person(request).get_username(), **asked)
        except OSError as error:
            raise DomainError(
                "STORAGE_UNAVAILABLE",
                f"The storage is unavailable: {error}. Nothing further was deleted.",
                {"part": "storage"},
                status=503,
            ) from error
        return Response(
            {
                "message": _said(freed, is_dry=asked["dry_run"]),
                "dry_run": asked["dry_run"],
                "num_checkpoints": freed.num_checkpoints,
                "num_unowned": freed.num_unowned,
                "num_trashed": freed.num_trashed,
                "freed_bytes": freed.freed_bytes,
            }
        )


def _said(freed: Freed, *, is_dry: bool) -> str:
    verb = "Would delete" if is_dry else "Deleted"
    what = f"{_counted(freed.num_checkpoints, 'checkpoint')} and "
    what += _counted(freed.num_unowned, "directory", "directories") + " without a database row"
    said = f"{verb} {what}: {freed.freed_bytes} bytes."
    if freed.num_trashed:
        trashed = _counted(freed.num_trashed, "complete checkpoint")
        days = f"{settings.THRESHOLDS.trash_days:g} days after discovery"
        said += f" {trashed} without a database row will be deleted {days}."
    return said


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
