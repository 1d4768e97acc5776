"""The form in which users edit name, tags, notes and marks of an operation."""

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from apps.dashboard.permissions import is_fetch, needs, user_of
from apps.dashboard.responses import refuse, say
from apps.operations import attention
from apps.operations.errors import OperationNotFound
from apps.operations.lifecycle import ACTIVE
from apps.operations.models import Operation
from apps.operations.requests import access, services
from apps.operations.requests.editing import Changes, edit
from trainops.errors import DomainError
from trainops.http.numbers import whole_number
from trainops.http.roles import Role
from trainops.runtime.errors import ConfigError

MARKS = ("is_favourite", "archived", "acknowledged")
MAX_REVISION = 2**31 - 1


@needs(Role.OPERATOR)
def edited(request: HttpRequest, operation_id: str) -> HttpResponse:
    """Show the form, or store what it holds."""
    try:
        operation = services.get(operation_id)
        access.require(operation, request.user, "edit")
    except OperationNotFound as refusal:
        raise Http404(refusal.message) from None
    except DomainError as refusal:
        return refuse(request, refusal, to=f"/operations/{operation_id}/")
    return _store(request, operation) if request.method == "POST" else _form(request, operation)


@needs(Role.OPERATOR)
@require_POST
def marked(request: HttpRequest, operation_id: str) -> HttpResponse:
    """Mark an operation as a favourite (`is_favourite=1`), or remove the mark (`0`)."""
    wanted = request.POST.get("is_favourite") == "1"
    try:
        operation = services.get(operation_id)
        access.require(operation, request.user, "edit")
        changes: Changes = {"is_favourite": wanted}
        if wanted != operation.is_favourite:
            edit(operation_id=operation.pk, actor=user_of(request), changes=changes)
    except OperationNotFound as refusal:
        raise Http404(refusal.message) from None
    except DomainError as refusal:
        return refuse(request, refusal, to=f"/operations/{operation_id}/")
    message = (
        f"Added “{operation.name}” to favourites."
        if wanted
        else (f"Removed “{operation.name}” from favourites.")
    )
    return say(request, message, to=operation.get_absolute_url())


def _form(request: HttpRequest, operation: Operation) -> HttpResponse:
    context = {
        "operation": operation,
        "tags": ", ".join(operation.tags.values_list("name", flat=True)),
        "may_archive": operation.state not in ACTIVE,
        "may_acknowledge": bool(attention.reasons(attention.row_of(operation))),
    }
    template = "part" if is_fetch(request) else "page"
    return render(request, f"dashboard/edit/{template}.html", context)


def _store(request: HttpRequest, operation: Operation) -> HttpResponse:
    page = operation.get_absolute_url()
    revision = whole_number(request.POST.get("revision", ""), 0, MAX_REVISION)
    try:
        edit(
            operation_id=operation.pk,
            actor=user_of(request),
            changes=_changes(request, operation),
            revision=revision,
        )
    except ConfigError as error:
        return say(request, f"Not saved: {error}.", level="error", to=page, status=400)
    except DomainError as refusal:
        return refuse(request, refusal, to=page)
    return say(request, "Saved.", to=page)


def _changes(request: HttpRequest, operation: Operation) -> Changes:
    """Return what the form holds; marks only where they differ."""
    changes: Changes = {
        "name": request.POST.get("name", ""),
        "tags": request.POST.get("tags", "").split(","),
        "project": request.POST.get("project", ""),
        "notes": request.POST.get("notes", ""),
    }
    is_now = {
        "is_favourite": operation.is_favourite,
        "archived": operation.archived_at is not None,
        "acknowledged": operation.acknowledged_at is not None,
    }
    if "acknowledged" in request.POST:
        changes["acknowledgement"] = request.POST.get("acknowledgement", "")
    for mark in MARKS:
        if (wanted := mark in request.POST) != is_now[mark]:
            changes[mark] = wanted  # type: ignore[literal-required] # one of its keys
    return changes
