"""What an operation leaves behind: curves, log, events, attempts; and the live view of them all."""

from hashlib import blake2b
from typing import Any

import orjson
from django.http import HttpResponse, HttpResponseNotModified, StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.operations import readings
from apps.operations.api.renderers import PlainText
from apps.operations.errors import OperationNotFound
from apps.operations.filters import AttemptQuery, LiveQuery, LogQuery, MetricsQuery
from apps.operations.models import Attempt, Event, Operation
from apps.operations.requests import services
from apps.operations.rows import LIVE_FIELDS, described, rows_of
from apps.operations.serializers import (
    ATTEMPT_FIELDS,
    EVENT_FIELDS,
    AttemptSerializer,
    CurvesSerializer,
    EventSerializer,
    LiveSerializer,
    LogSerializer,
)
from trainops.http.asking import query_of
from trainops.http.envelope import OPTIONS, EnvelopeRenderer, encode
from trainops.http.pagination import NewestFirst

MAX_EVENTS = 200


class LatestFirst(NewestFirst):
    """Events by the moment they happened."""

    default_ordering = "-at"


class HighestFirst(NewestFirst):
    """Attempts by their number."""

    default_ordering = "-number"


class MetricsView(APIView):
    @extend_schema(
        operation_id="operations_metrics", parameters=[MetricsQuery], responses=CurvesSerializer
    )
    def get(self, request: Request, operation_id: str) -> Response:
        """Its curves: one for each metric and attempt; what a resume gave up is marked retired."""
        query = query_of(request, MetricsQuery)
        services.get(operation_id)
        wanted = {"names" if name == "name" else name: value for name, value in query.items()}
        return Response(_ready(_curves(readings.curves(operation_id, **wanted))))


class LogsView(APIView):
    @extend_schema(operation_id="operations_logs", parameters=[LogQuery], responses=LogSerializer)
    def get(self, request: Request, operation_id: str) -> Response:
        """The last lines it printed, or what came after a chunk seen before."""
        query = query_of(request, LogQuery)
        services.get(operation_id)
        after, attempt = query.get("after"), query.get("attempt")
        if after is None:
            log = readings.log_tail(operation_id, num_lines=query["tail"], attempt=attempt)
        else:
            log = readings.log_after(operation_id, after_id=after, attempt=attempt)
        return Response(_ready(_log(log)))


class LogFileView(APIView):
    renderer_classes = (EnvelopeRenderer, PlainText)

    @extend_schema(
        operation_id="operations_log_file",
        parameters=[AttemptQuery],
        responses={(200, "text/plain"): OpenApiResponse(OpenApiTypes.STR)},
    )
    def get(self, request: Request, operation_id: str) -> HttpResponseBase:
        """All that is kept of its log, as a text file."""
        query = query_of(request, AttemptQuery)
        services.get(operation_id)
        response = StreamingHttpResponse(
            readings.log_chunks(operation_id, query.get("attempt")),
            content_type="text/plain; charset=utf-8",
        )
        response["Content-Disposition"] = f'attachment; filename="{operation_id}.log"'
        response["X-Content-Type-Options"] = "nosniff"
        return response


class EventsView(APIView):
    pagination_class = LatestFirst

    @extend_schema(operation_id="operations_events", responses=EventSerializer(many=True))
    def get(self, request: Request, operation_id: str) -> Response:
        """What happened to it: when, by whom, why. Newest first."""
        query_of(request, is_paged=True)
        services.get(operation_id)
        events = Event.objects.filter(operation_id=operation_id).values(*EVENT_FIELDS)
        paginator = LatestFirst()
        return paginator.get_paginated_response(paginator.paginate_queryset(events, request, self))


class AttemptsView(APIView):
    pagination_class = HighestFirst

    @extend_schema(operation_id="operations_attempts", responses=AttemptSerializer(many=True))
    def get(self, request: Request, operation_id: str) -> Response:
        """Its runs on workers, newest first, with what each restored and how quickly it began."""
        query_of(request, is_paged=True)
        services.get(operation_id)
        attempts = Attempt.objects.filter(operation_id=operation_id).values("id", *ATTEMPT_FIELDS)
        paginator = HighestFirst()
        page = paginator.paginate_queryset(attempts, request, self)
        rows = [{name: row[name] for name in ATTEMPT_FIELDS} for row in page]
        return paginator.get_paginated_response(rows)


class LiveView(APIView):
    @extend_schema(
        operation_id="operations_live",
        parameters=[
            LiveQuery,
            OpenApiParameter("If-None-Match", OpenApiTypes.STR, OpenApiParameter.HEADER),
        ],
        responses={200: LiveSerializer, 304: OpenApiResponse(description="Nothing has changed.")},
    )
    def get(self, request: Request, operation_id: str) -> HttpResponseBase:
        """What a page that watches needs: the state, and what is new since what it has seen.

        Send the ETag back as If-None-Match: the answer is 304 while nothing changes. A part is
        given only where its `…_after` is.
        """
        query = query_of(request, LiveQuery)
        row = rows_of(Operation.objects.filter(pk=operation_id), LIVE_FIELDS).first()
        if row is None:
            raise OperationNotFound(operation_id)
        parts = {"operation": described(row, request.user), **_news(operation_id, query)}
        content = encode(_ready(parts))
        tag = f'"{blake2b(content, digest_size=12).hexdigest()}"'
        headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
        if request.headers.get("If-None-Match", "").removeprefix("W/") == tag:
            return HttpResponseNotModified(headers=headers)
        return HttpResponse(content, content_type="application/json", headers=headers)


def _news(operation_id: str, query: dict[str, Any]) -> dict[str, Any]:
    attempts = Attempt.objects.filter(operation_id=operation_id).order_by("number")
    news: dict[str, Any] = {"attempts": list(attempts.values("number", "from_step", "outcome"))}
    if (after := query.get("points_after")) is not None:
        news["points"] = _curves(
            readings.curves(operation_id, after_id=after, max_points=query["max_points"])
        )
    if (after := query.get("log_after")) is not None:
        news["log"] = _log(
            readings.log_after(operation_id, after_id=after)
            if after
            else readings.log_tail(operation_id, num_lines=query["tail"])
        )
    if (after := query.get("events_after")) is not None:
        events = Event.objects.filter(operation_id=operation_id, id__gt=after).order_by("-id")
        news["events"] = list(events.values(*EVENT_FIELDS)[:MAX_EVENTS])
    return news


def _curves(curves: readings.Curves) -> dict[str, Any]:
    return {
        "series": curves.series,
        "last_id": curves.last_id,
        "is_thinned": curves.is_thinned,
    }


def _log(log: readings.Log) -> dict[str, Any]:
    return {"chunks": log.chunks, "last_id": log.last_id, "has_more": log.has_more}


def _ready(payload: Any) -> orjson.Fragment:
    """Return JSON that the envelope need not walk through: all in it is finite already."""
    return orjson.Fragment(orjson.dumps(payload, option=OPTIONS))
