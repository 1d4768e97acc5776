"""One operation: its page, what keeps it live, its log and its files."""

from collections.abc import Iterator
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.http import StreamingHttpResponse as Streaming
from django.http.response import HttpResponseBase
from django.shortcuts import render

from apps.checkpoints.models import Checkpoint
from apps.dashboard import parts, points
from apps.dashboard.answers import refused
from apps.dashboard.gate import needs
from apps.operations import artifacts
from apps.operations.errors import OperationNotFound
from apps.operations.models import LogChunk, Operation
from apps.operations.requests import services
from trainops.errors import Refusal
from trainops.http.numbers import whole_number

LOG_CHARACTERS = 64_000  # of the log's end, on the page; the rest is in the download
LOG_CHUNKS = 400
TABS = (
    ("attempts", "Attempts"),
    ("checkpoints", "Checkpoints"),
    ("receipt", "Receipt"),
    ("events", "Events"),
    ("config", "Config"),
    ("files", "Files"),
)


@needs()
def operation(request: HttpRequest, operation_id: str) -> HttpResponse:
    subject = parts.Subject(_find(operation_id), request.user)
    log = _log_after(operation_id, 0)
    drawn = {name: {"html": html, "digest": d} for name, (html, d) in _drawn(subject)}
    context = {
        "operation": subject.operation,
        "part": subject.part,
        "parts": drawn,
        "panels": [(panel, drawn[panel.name]) for panel in subject.panels("page")],
        "is_settled": parts.is_settled(subject.operation),
        "log": log,
        "log_last": log[-1]["id"] if log else 0,
        "tab_names": TABS,
    }
    return render(request, "dashboard/operation/page.html", context)


@needs()
def live(request: HttpRequest, operation_id: str) -> JsonResponse:
    """Return what changed: parts whose digest is another, points and log after the given ids."""
    subject = parts.Subject(_find(operation_id), request.user)
    told = request.GET.get("have", "").split(",")
    have = dict(part.split(":", 1) for part in told if ":" in part)
    changed = {
        name: {"html": html, "digest": digest}
        for name, (html, digest) in _drawn(subject)
        if have.get(name) != digest
    }
    return JsonResponse(
        {
            "state": subject.operation.state,
            "settled": parts.is_settled(subject.operation),
            "parts": changed,
            "points": points.after(operation_id, _whole(request, "points")),
            "starts": points.starts(subject.attempts),
            "log": _log_after(operation_id, _whole(request, "log")),
        }
    )


@needs()
def log(request: HttpRequest, operation_id: str) -> Streaming:
    """The whole log as plain text, of one attempt or of all."""
    chunks = LogChunk.objects.filter(operation_id=_find(operation_id).pk)
    name = operation_id
    if attempt := _whole(request, "attempt"):
        chunks, name = chunks.filter(attempt=attempt), f"{operation_id}-attempt-{attempt}"
    answer = Streaming(_text(chunks), content_type="text/plain; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{name}.log"'
    return answer


@needs()
def file(
    request: HttpRequest, operation_id: str, checkpoint_id: str, name: str
) -> HttpResponseBase:
    """One file of a checkpoint, as the API serves it: verified before its first byte is sent."""
    checkpoint = Checkpoint.objects.filter(pk=checkpoint_id, operation_id=operation_id).first()
    if checkpoint is None:
        raise Http404("There is no such file.")
    try:
        if (link := artifacts.link(checkpoint, name)) is not None:
            return HttpResponseRedirect(link)
        download = artifacts.download(checkpoint, name)
    except artifacts.ArtifactNotFound as refusal:
        raise Http404(refusal.message) from None
    except Refusal as refusal:
        return refused(request, refusal)
    return download.response(f"{operation_id}-step{checkpoint.step}-{name}")


def _drawn(subject: parts.Subject) -> Any:
    return parts.draw(subject).items()


def _find(operation_id: str) -> Operation:
    try:
        return services.get(operation_id)
    except OperationNotFound as refusal:
        raise Http404(str(refusal)) from None


def _whole(request: HttpRequest, name: str) -> int:
    text = request.GET.get(name, "")
    return whole_number(text, 0, 10**18) or 0


def _log_after(operation_id: str, chunk_id: int) -> list[dict[str, Any]]:
    """Return the chunks after an id, oldest first; of a long log only the end."""
    chunks = LogChunk.objects.filter(operation_id=operation_id, id__gt=chunk_id).order_by("-id")
    found: list[dict[str, Any]] = []
    left = LOG_CHARACTERS
    for chunk in chunks.values("id", "attempt", "text")[:LOG_CHUNKS]:
        found.append({**chunk, "text": chunk["text"][-left:]})
        left -= len(chunk["text"])
        if left <= 0:
            break
    return found[::-1]


def _text(chunks: Any) -> Iterator[str]:
    attempt = None
    for chunk in chunks.order_by("id").iterator(100):
        if chunk.attempt != attempt:
            attempt = chunk.attempt
            yield f"--- attempt {attempt} ---\n"
        yield chunk.text
