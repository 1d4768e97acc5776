"""What an operation leaves behind: curves, log, events, attempts; and the live view of them all."""

from typing import Any, NotRequired, TypedDict

import orjson
from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.operations import log_lines
from apps.operations.api.log_serializers import LogLinesQuery, LogLinesSerializer
from apps.operations.api.record_serializers import (
    ATTEMPT_FIELDS,
    EVENT_FIELDS,
    AttemptSerializer,
    CurvesSerializer,
    EventSerializer,
    LiveSerializer,
    LogSerializer,
)
from apps.operations.api.renderers import Csv, PlainText
from apps.operations.api.rows import LIVE_FIELDS, described, rows_of
from apps.operations.errors import OperationNotFound
from apps.operations.filters import AttemptQuery, LiveQuery, LogQuery, MetricsQuery, WindowQuery
from apps.operations.id_order import newest_first
from apps.operations.models import Attempt, Event
from apps.operations.points import metric_queries, points_csv
from apps.operations.requests import services
from trainops.http.asking import query_of
from trainops.http.envelope import OPTIONS, EnvelopeRenderer
from trainops.http.etags import with_etag
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
    @with_etag
    def get(self, request: Request, operation_id: str) -> Response:
        """Return one curve per metric and attempt; points discarded by a resume are retired."""
        query = query_of(request, MetricsQuery)
        services.get(operation_id)
        wanted = {"names" if name == "name" else name: value for name, value in query.items()}
        return Response(ready(curves_json(metric_queries.curves(operation_id, **wanted))))


class PointsFileView(APIView):
    renderer_classes = (EnvelopeRenderer, Csv)

    @extend_schema(
        operation_id="operations_points_file",
        parameters=[WindowQuery],
        responses={(200, "text/csv"): OpenApiResponse(OpenApiTypes.STR)},
    )
    def get(self, request: Request, operation_id: str) -> HttpResponseBase:
        """Download all points as a CSV file; none is left out."""
        query = query_of(request, WindowQuery)
        services.get(operation_id)
        response = StreamingHttpResponse(
            points_csv.pages(operation_id, **query), content_type="text/csv; charset=utf-8"
        )
        response["Content-Disposition"] = f'attachment; filename="{operation_id}-points.csv"'
        response["X-Content-Type-Options"] = "nosniff"
        return response


class LogsView(APIView):
    @extend_schema(operation_id="operations_logs", parameters=[LogQuery], responses=LogSerializer)
    def get(self, request: Request, operation_id: str) -> Response:
        """Return the latest lines of the log, or those after a given chunk."""
        query = query_of(request, LogQuery)
        services.get(operation_id)
        after, attempt = query.get("after"), query.get("attempt")
        if after is None:
            log = metric_queries.log_tail(operation_id, num_lines=query["tail"], attempt=attempt)
        else:
            log = metric_queries.log_after(operation_id, after_id=after, attempt=attempt)
        return Response(ready(_log(log)))


class LogLinesView(APIView):
    @extend_schema(
        operation_id="operations_log_lines",
        parameters=[LogLinesQuery],
        responses=LogLinesSerializer,
    )
    def get(self, request: Request, operation_id: str) -> Response:
        """Return lines with times and levels: the last ones, a window, or those that match."""
        query = query_of(request, LogLinesQuery)
        services.get(operation_id)
        attempt = query.get("attempt")
        if query["is_search"]:
            wanted = log_lines.LogSearch(
                query["search"], query.get("level", ""), query.get("since"),
                query["around"], query["limit"],
            )  # fmt: skip
            return Response(ready(log_lines.search(operation_id, wanted, attempt=attempt)))
        after, before = query.get("after"), query.get("before")
        window = log_lines.window(operation_id, attempt=attempt, after=after, before=before)
        return Response(ready(window))


class LogFileView(APIView):
    renderer_classes = (EnvelopeRenderer, PlainText)

    @extend_schema(
        operation_id="operations_log_file",
        parameters=[AttemptQuery],
        responses={(200, "text/plain"): OpenApiResponse(OpenApiTypes.STR)},
    )
    def get(self, request: Request, operation_id: str) -> HttpResponseBase:
        """Download the log as a text file."""
        query = query_of(request, AttemptQuery)
        services.get(operation_id)
        response = StreamingHttpResponse(
            metric_queries.log_chunks(operation_id, query.get("attempt")),
            content_type="text/plain; charset=utf-8",
        )
        response["Content-Disposition"] = f'attachment; filename="{operation_id}.log"'
        response["X-Content-Type-Options"] = "nosniff"
        return response


class EventsView(APIView):
    pagination_class = LatestFirst

    @extend_schema(operation_id="operations_events", responses=EventSerializer(many=True))
    @with_etag
    def get(self, request: Request, operation_id: str) -> Response:
        """List events with time, user and reason, latest first."""
        query_of(request, is_paged=True)
        services.get(operation_id)
        events = Event.objects.filter(operation_id=operation_id).values(*EVENT_FIELDS)
        paginator = LatestFirst()
        return paginator.get_paginated_response(paginator.paginate_queryset(events, request, self))


class AttemptsView(APIView):
    pagination_class = HighestFirst

    @extend_schema(operation_id="operations_attempts", responses=AttemptSerializer(many=True))
    @with_etag
    def get(self, request: Request, operation_id: str) -> Response:
        """List attempts, latest first, with their receipts and start-up times."""
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
        parameters=[LiveQuery],
        responses=LiveSerializer,
    )
    @with_etag
    def get(self, request: Request, operation_id: str) -> Response:
        """Return the state, and the changes since the given ids.

        A part is given only where its `…_after` is.
        """
        query = query_of(request, LiveQuery)
        row: Any = rows_of(*LIVE_FIELDS).filter(pk=operation_id).first()
        if row is None:
            raise OperationNotFound(operation_id)
        parts = {"operation": described(row, request.user), **_updates(operation_id, query)}
        return Response(ready(parts))


class LiveCriteria(TypedDict):
    """The validated values of LiveQuery."""

    points_after: NotRequired[int]
    log_after: NotRequired[int]
    events_after: NotRequired[int]
    max_points: int
    tail: int


class CurvesJson(TypedDict):
    """What CurvesSerializer describes."""

    series: list[metric_queries.Curve]
    last_id: int
    is_thinned: bool


class LogJson(TypedDict):
    """What LogSerializer describes."""

    chunks: list[metric_queries.Chunk]
    last_id: int
    has_more: bool


class AttemptUpdate(TypedDict):
    """What LiveAttemptSerializer describes."""

    number: int
    from_step: int | None
    outcome: str


class Updates(TypedDict):
    """What LiveSerializer describes, without the operation."""

    attempts: list[AttemptUpdate]
    points: NotRequired[CurvesJson]
    log: NotRequired[LogJson]
    events: NotRequired[list[dict[str, object]]]  # columns: EVENT_FIELDS


def _updates(operation_id: str, query: LiveCriteria) -> Updates:
    attempts = Attempt.objects.filter(operation_id=operation_id).order_by("number")
    updates: Updates = {"attempts": list(attempts.values("number", "from_step", "outcome"))}
    if (after := query.get("points_after")) is not None:
        updates["points"] = curves_json(
            metric_queries.curves(operation_id, after_id=after, max_points=query["max_points"])
        )
    if (after := query.get("log_after")) is not None:
        updates["log"] = _log(
            metric_queries.log_after(operation_id, after_id=after)
            if after
            else metric_queries.log_tail(operation_id, num_lines=query["tail"])
        )
    if (after := query.get("events_after")) is not None:
        events = newest_first(Event.objects.all(), after, operation_id=operation_id)
        updates["events"] = list(events.values(*EVENT_FIELDS)[:MAX_EVENTS])
    return updates


def curves_json(curves: metric_queries.Curves) -> CurvesJson:
    return {
        "series": curves.series,
        "last_id": curves.last_id,
        "is_thinned": curves.is_thinned,
    }


def _log(log: metric_queries.Log) -> LogJson:
    return {"chunks": log.chunks, "last_id": log.last_id, "has_more": log.has_more}


def ready(payload: object) -> orjson.Fragment:
    """Return JSON that the envelope need not walk through: all in it is finite already."""
    return orjson.Fragment(orjson.dumps(payload, option=OPTIONS))
