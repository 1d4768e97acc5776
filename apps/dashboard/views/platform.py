"""Pages about the platform: workers, settings."""

from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from apps.dashboard import menu
from apps.dashboard import tour as tours
from apps.dashboard.live import follow, reader_of
from apps.dashboard.load_curves import load_curves
from apps.dashboard.permissions import is_fetch, needs, user_of
from apps.dashboard.responses import refuse, say
from apps.operations import versions
from apps.operations.lifecycle import WAITING
from apps.operations.models import Operation
from apps.operations.requests import access
from apps.workers import load, registry
from apps.workers.badges import status_badge
from apps.workers.models import Worker
from apps.workers.rows import gpus_of
from trainops.errors import DomainError
from trainops.http.roles import Role, has_role

MEANING = {
    "AVAILABLE": "idle, waiting for work",
    "BUSY": "running operations",
    "STORAGE_AWAY": "accepting no operations until the checkpoint storage is back",
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
    loads = load.latest()
    context = {
        "workers": [
            {
                "row": worker,
                "badge": status_badge(worker.status),
                "meaning": MEANING[worker.status],
                "running": running.get(worker.pk, []),
                "gpus": gpus_of(worker.capabilities),
                "load": loads.get(worker.pk),
            }
            for worker in rows
        ],
        "may_drain": has_role(request.user, Role.ADMIN),
        "num_waiting": Operation.objects.filter(state__in=WAITING).count(),
        "timeout": settings.THRESHOLDS.health_check_timeout_seconds,
    }
    follow(request, versions.OPERATIONS, reader_of(None, request.user), "")
    template = "part" if is_fetch(request) else "page"
    return render(request, f"dashboard/workers/{template}.html", context)


@needs()
def worker_load(request: HttpRequest, worker_id: str) -> HttpResponse:
    """Show how busy the machine of a worker was in the last day."""
    try:
        worker: Any = registry.get(worker_id)  # its annotations are not typed
    except DomainError as missing:
        raise Http404(missing.message) from None
    curves = load_curves(load.samples(worker_id), gpus_of(worker.capabilities))
    context = {"worker": worker, "curves": curves, "badge": status_badge(worker.status)}
    return render(request, "dashboard/workers/load.html", context)


@require_POST
@needs(Role.ADMIN)
def act_on_worker(request: HttpRequest, worker_id: str, action: str) -> HttpResponse:
    """Drain a worker, or let it accept work again."""
    try:
        if action == "drain":
            registry.drain(worker_id=worker_id, reason=f"by {user_of(request).get_username()}")
            message = f"Draining {worker_id}: it finishes its operations and accepts no new ones."
        elif action == "undrain":
            registry.undrain(worker_id=worker_id)
            message = f"{worker_id} accepts work again."
        else:
            raise Http404
    except DomainError as refusal:
        return refuse(request, refusal, to="/workers/")
    return say(request, message, to="/workers/")


@needs()
def menu_counts(request: HttpRequest) -> JsonResponse:
    """Return the counts of the menu, for pages that follow nothing else."""
    follow(request, versions.OPERATIONS, reader_of(None, request.user), "")
    return JsonResponse(menu.menu_counts())


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
    main_tag = "div"  # Swagger UI has a <main> of its own
    return render(request, "dashboard/api_docs.html", {"main_tag": main_tag})
