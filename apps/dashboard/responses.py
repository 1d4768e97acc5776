"""What a button gets back: a line for a toast where a script asked, else the page again."""

from collections.abc import Sequence

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.utils.http import url_has_allowed_host_and_scheme

from apps.dashboard.permissions import is_fetch, problem
from trainops.errors import DomainError

LEVELS = {"success": messages.SUCCESS, "warning": messages.WARNING, "error": messages.ERROR}


def say(
    request: HttpRequest,
    message: str,
    *,
    level: str = "success",
    details: Sequence[str] = (),
    to: str = "/",
    status: int = 200,
    leave: bool = False,
) -> HttpResponse:
    """Answer a POST. `leave`: the page that asked is gone or must change, so go to `to`."""
    if is_fetch(request) and not leave:
        body = {"level": level, "message": message, "details": list(details)}
        return JsonResponse(body, status=status)
    messages.add_message(request, LEVELS[level], " ".join([message, *details]))
    if is_fetch(request):
        return JsonResponse({"go": safe(request, to)})
    return HttpResponseRedirect(safe(request, to))


def refuse(request: HttpRequest, refusal: DomainError, *, to: str = "/") -> HttpResponse:
    return say(request, refusal.message, level="error", to=to, status=refusal.status)


def refused(request: HttpRequest, refusal: DomainError) -> HttpResponse:
    """Answer a link that leads to what cannot be given: a page of its own, with the reason."""
    if is_fetch(request):
        return problem(refusal.message, refusal.status)
    response = render(request, "refused.html", {"refusal": refusal}, status=refusal.status)
    if refusal.retry_after_seconds:
        response["Retry-After"] = str(refusal.retry_after_seconds)
    return response


def safe(request: HttpRequest, to: str) -> str:
    """Return an address of this site; the list where the given one leads elsewhere."""
    is_ours = url_has_allowed_host_and_scheme(to, allowed_hosts={request.get_host()})
    return to if is_ours else "/"
