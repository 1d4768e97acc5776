"""The form that saves the view of the list, and deletes saved ones."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from apps.dashboard.filters import Filters
from apps.dashboard.permissions import is_fetch, needs, user_of
from apps.dashboard.responses import refuse, say
from apps.operations.search import views
from trainops.errors import DomainError
from trainops.http.roles import Role, has_role
from trainops.runtime.errors import ConfigError


@needs()
def form(request: HttpRequest) -> HttpResponse:
    """Show the form, or store what it holds."""
    if request.method == "POST":
        return _store(request)
    context = {
        "filters": Filters.read(request.GET, request.user),
        "mine": views.visible(request.user).filter(owner=user_of(request)),
        "may_share": has_role(request.user, Role.ADMIN),
    }
    template = "part" if is_fetch(request) else "page"
    return render(request, f"dashboard/views/{template}.html", context)


def _store(request: HttpRequest) -> HttpResponse:
    filters = Filters.read(request.POST, request.user)
    try:
        view = views.save(
            owner=user_of(request),
            name=request.POST.get("name", ""),
            query=filters.query,
            columns=filters.column_names,
            sort=filters.sort,
            group_by=filters.group,
            is_shared="is_shared" in request.POST,
        )
    except ConfigError as error:
        return say(request, f"Not saved: {error}.", level="error", status=400)
    except DomainError as refusal:
        return refuse(request, refusal)
    return say(request, f"Saved the view “{view.name}”.")


@require_POST
@needs()
def delete(request: HttpRequest, view_id: int) -> HttpResponse:
    """Delete one view."""
    try:
        name = views.delete(view_id=view_id, actor=user_of(request))
    except DomainError as refusal:
        return refuse(request, refusal)
    return say(request, f"Deleted the view “{name}”.")
