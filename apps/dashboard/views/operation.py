"""One operation: its page, what keeps it live, its log and its files."""

from collections.abc import ItemsView

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.http import StreamingHttpResponse as Streaming
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.safestring import SafeString

from apps.checkpoints.models import Checkpoint
from apps.dashboard import checkpoint_files, config_table, operation_updates, parts, points
from apps.dashboard.live import follow, reader_of
from apps.dashboard.permissions import SubjectNotFound, needs, user_of
from apps.dashboard.responses import refused
from apps.operations import media_queries, versions
from apps.operations.errors import MediaNotFound, OperationNotFound
from apps.operations.files import archives, artifacts
from apps.operations.filters import WindowQuery
from apps.operations.models import Operation
from apps.operations.points import metric_queries, points_csv
from apps.operations.requests import services
from trainops.errors import DomainError
from trainops.http.numbers import whole_number

TABS = (
    ("log", "Log"),
    ("media", "Media"),
    ("attempts", "Attempts"),
    ("checkpoints", "Checkpoints"),
    ("receipt", "Receipt"),
    ("events", "Events"),
    ("config", "Config"),
    ("files", "Files"),
)


@needs()
def operation(request: HttpRequest, operation_id: str) -> HttpResponse:
    subject = _subject(request, operation_id)
    drawn = {name: {"html": html, "digest": d} for name, (html, d) in _drawn(subject)}
    context = {
        "operation": subject.operation,
        "subtask": subject.subtask,
        "parts": drawn,
        "panels": [(panel, drawn[panel.name]) for panel in subject.panels("page")],
        "panels_below": [(panel, drawn[panel.name]) for panel in subject.panels("below")],
        "is_settled": parts.is_settled(subject.operation),
        "log_attempts": range(1, subject.operation.attempt + 1),
        "tab_names": TABS,
        "media_version": media_queries.version(operation_id),
        **config_table.of(subject.operation),
    }
    return render(request, "dashboard/operation/page.html", context)


@needs()
def live(request: HttpRequest, operation_id: str) -> JsonResponse:
    """Return the parts whose digest is another, the points after an id, the newest log chunk."""
    subject = _subject(request, operation_id)
    given = request.GET.get("have", "").split(",")
    have = dict(part.split(":", 1) for part in given if ":" in part)
    response, page = operation_updates.opened(subject, have, _whole(request, "points"))
    follow(request, versions.topic_of(operation_id), subject.user, page.query, page=page)
    return response


@needs()
def window(request: HttpRequest, operation_id: str) -> JsonResponse:
    """Return the points of some metrics in a window of steps, for charts that are zoomed."""
    query = WindowQuery(data=request.GET.dict())
    if not query.is_valid():
        return JsonResponse({"errors": query.errors}, status=400)
    _find(operation_id)
    return JsonResponse(points.window(operation_id, **query.validated_data))


@needs()
def points_file(request: HttpRequest, operation_id: str) -> HttpResponseBase:
    """All points of some metrics as CSV, in a window of steps if one is given."""
    query = WindowQuery(data=request.GET.dict())
    if not query.is_valid():
        return JsonResponse({"errors": query.errors}, status=400)
    text = points_csv.pages(_find(operation_id).pk, **query.validated_data)
    answer = Streaming(text, content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{operation_id}-points.csv"'
    return answer


@needs()
def log(request: HttpRequest, operation_id: str) -> Streaming:
    """The whole log as plain text, of one attempt or of all."""
    attempt = _whole(request, "attempt") or None
    name = f"{_find(operation_id).pk}-attempt-{attempt}" if attempt else operation_id
    text = metric_queries.log_chunks(operation_id, attempt, has_headings=True)
    answer = Streaming(text, content_type="text/plain; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{name}.log"'
    return answer


@needs()
def media(request: HttpRequest, operation_id: str) -> JsonResponse:
    """What the recipe logged besides numbers, by name and step."""
    return JsonResponse({"names": media_queries.listed(_find(operation_id).pk)})


@needs()
def media_content(request: HttpRequest, operation_id: str, media_id: int) -> HttpResponse:
    """The content of one item."""
    asked_range = request.headers.get("Range", "")
    try:
        row = media_queries.found(_find(operation_id).pk, media_id)
        return media_queries.response(row, asked_range)
    except MediaNotFound as refusal:
        raise Http404(refusal.message) from None


@needs()
def file(
    request: HttpRequest, operation_id: str, checkpoint_id: str, name: str
) -> HttpResponseBase:
    """One file of a checkpoint, as the API serves it: verified before its first byte is sent."""
    checkpoint = Checkpoint.objects.filter(pk=checkpoint_id, operation_id=operation_id).first()
    if checkpoint is None:
        raise Http404("This file does not exist.")
    try:
        if (link := artifacts.link(checkpoint, name)) is not None:
            return HttpResponseRedirect(link)
        download = artifacts.download(checkpoint, name)
    except artifacts.ArtifactNotFound as refusal:
        raise Http404(refusal.message) from None
    except DomainError as refusal:
        return refused(request, refusal)
    return download.response(checkpoint_files.download_name(checkpoint, name))


@needs()
def archive(request: HttpRequest, operation_id: str) -> HttpResponseBase:
    """All files as a zip, as the API serves it."""
    try:
        made = archives.OperationArchive(
            _find(operation_id), person=user_of(request).get_username()
        )
    except DomainError as refusal:
        return refused(request, refusal)
    return made.response()


def _subject(request: HttpRequest, operation_id: str) -> parts.Subject:
    operation = _find(operation_id)
    return parts.Subject(operation, reader_of(operation.owner_id, request.user))


def _drawn(subject: parts.Subject) -> ItemsView[str, tuple[SafeString, str]]:
    return parts.draw(subject).items()


def _find(operation_id: str) -> Operation:
    try:
        return services.get(operation_id)
    except OperationNotFound as refusal:
        raise SubjectNotFound(str(refusal)) from None


def _whole(request: HttpRequest, name: str) -> int:
    text = request.GET.get(name, "")
    return whole_number(text, 0, 10**18) or 0
