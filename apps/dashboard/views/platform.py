"""Pages about the platform: workers, checkpoints, settings."""

from typing import Any

from django.conf import settings
from django.db.models import F, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from apps.checkpoints.models import Checkpoint
from apps.dashboard import pages, parts
from apps.dashboard import tour as tours
from apps.dashboard.live import follow, reader_of
from apps.dashboard.permissions import is_fetch, needs
from apps.operations import versions
from apps.operations.lifecycle import WAITING
from apps.operations.models import Operation
from apps.operations.requests import access
from apps.workers.badges import status_badge
from apps.workers.models import Worker

PAGE_SIZE = 50
MEANING = {
    "AVAILABLE": "idle, waiting for work",
    "BUSY": "running operations",
    "DRAINING": "finishing or saving its operations, accepting no new ones",
    "TEMPORARILY_UNAVAILABLE": "no recent heartbeat",
    "GONE": "no heartbeat for a long time",
}


@needs()
def workers(request: HttpRequest) -> HttpResponse:
    """Every worker the registry knows, with what it runs; the part alone where a script asks."""
    rows: Any = Worker.objects.with_status()  # its annotations are not typed
    running: dict[str, list[object]] = {}
    for each in Operation.objects.filter(state="RUNNING").values("id", "name", "worker_id"):
        running.setdefault(each["worker_id"], []).append(each)
    context = {
        "workers": [
            {
                "row": worker,
                "badge": status_badge(worker.status),
                "meaning": MEANING[worker.status],
                "running": running.get(worker.pk, []),
                "gpus": worker.capabilities.get("gpus") or [],
            }
            for worker in rows
        ],
        "num_waiting": Operation.objects.filter(state__in=WAITING).count(),
        "timeout": settings.THRESHOLDS.health_check_timeout_seconds,
    }
    follow(request, versions.OPERATIONS, reader_of(None, request.user), "")
    template = "part" if is_fetch(request) else "page"
    return render(request, f"dashboard/workers/{template}.html", context)


@needs()
def checkpoints(request: HttpRequest) -> HttpResponse:
    """All checkpoints, newest first."""
    found = Checkpoint.objects.values(
        "id", "type", "step", "created_at", "artifacts_size_bytes", "health", "problem",
        "pinned", "is_best", "best_of", "metric", "operation_id",
        operation_name=F("operation__name"), unit=F("operation__unit"),
        epoch=F("state__epoch"), owner_id=F("operation__owner_id"),
        operation_state=F("operation__state"),
    )  # fmt: skip
    page = pages.fetch(found, request.GET.get("cursor", ""), PAGE_SIZE)
    mine = {row["id"] for row in page.rows if access.may_change(row["owner_id"], request.user)}
    context = {
        "page": page,
        "mine": mine,
        "colours": parts.CHECKPOINT_COLOURS,
        "total_bytes": Checkpoint.objects.aggregate(total=Sum("counted_size_bytes"))["total"],
        "max_age_days": settings.THRESHOLDS.checkpoint_max_age_days,
    }
    return render(request, "dashboard/checkpoints/list.html", context)


@needs()
def thresholds(request: HttpRequest) -> HttpResponse:
    """Every number that an installation may change, and where its value comes from."""
    rows = [
        {
            "name": name,
            "environment": f"TRAINOPS_{name.upper()}",
            "value": getattr(settings.THRESHOLDS, name),
            "default": field.default,
            "description": field.description,
            "is_changed": getattr(settings.THRESHOLDS, name) != field.default,
        }
        for name, field in type(settings.THRESHOLDS).model_fields.items()
    ]
    return render(request, "dashboard/settings.html", {"rows": rows})


@needs()
def keys(request: HttpRequest) -> HttpResponse:
    """The keyboard; the part alone for a dialog."""
    return render(request, "dashboard/keys.html", {"is_fetch": is_fetch(request)})


@needs()
def tour(request: HttpRequest) -> HttpResponse:
    """The steps of the tour; the part alone for its dialog."""
    steps = tours.steps(may_create=access.may_create(request.user))
    return render(request, "dashboard/tour.html", {"is_fetch": is_fetch(request), "steps": steps})


@needs()
def api_docs(request: HttpRequest) -> HttpResponse:
    """The HTTP API, to read and to try; Swagger UI reads its OpenAPI document."""
    return render(request, "dashboard/api_docs.html")
