"""Sign-ins by a provider (OpenID Connect), and which of its people an account is connected with."""

import time
from http import HTTPStatus
from secrets import token_urlsafe
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils.crypto import constant_time_compare
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST, require_safe

from apps.dashboard import tour
from apps.dashboard.permissions import user_of
from apps.dashboard.responses import safe
from apps.dashboard.views.account import SignInForm, password_problem
from trainops.errors import DomainError
from trainops.http import second_factor
from trainops.http.access_log import note
from trainops.http.middleware import keep_quiet
from trainops.http.models import Identity
from trainops.http.oidc import accounts, flow, logout
from trainops.http.oidc.errors import SignInRefused
from trainops.oidc_settings import Oidc

PAGE = "/account/identity"
MAY_LINK = "oidc_connect"  # key of sessions: the password was right
MAY_LINK_SECONDS = 300
MAX_LOGOUT_TOKEN = 20_000  # characters


def provider() -> Oidc:
    """Return the provider. Raises Http404: there is none."""
    found: Oidc | None = settings.OIDC
    if found is None:
        raise Http404("No provider of sign-ins is configured.")
    return found


@never_cache
@require_safe
def start(request: HttpRequest) -> HttpResponse:
    """Send the browser to the provider."""
    oidc, to = provider(), safe(request, request.GET.get("next", "/"))
    links = _may_link(request)
    if request.user.is_authenticated and not links:
        return redirect(to)
    try:
        return redirect(flow.begin(request, oidc, to, links=links))
    except SignInRefused as problem:
        return refused(request, problem, to)


@never_cache
@require_safe
def callback(request: HttpRequest) -> HttpResponse:
    """Sign in, or connect an account, with what the provider sent the browser back with."""
    oidc, to = provider(), flow.destination(request)
    try:
        finished = flow.finish(request, oidc)
    except SignInRefused as problem:
        return refused(request, problem, to)
    if finished.is_linked:
        messages.success(request, f"Connected with {oidc.name}.")
    if finished.is_first:
        tour.offer(request)
    return redirect(finished.to)


@never_cache
@require_safe
def sign_out(request: HttpRequest) -> HttpResponse:
    """Lead to the page of the provider that ends the session there."""
    oidc = provider()
    try:
        address = flow.sign_out_address(request, oidc)
    except SignInRefused as problem:
        return refused(request, problem)
    if not address:
        message = f"{oidc.name} has no page to sign out; close the browser to end its session."
        return refused(request, SignInRefused(message, status=404))
    return redirect(address)


@never_cache
@csrf_exempt  # the provider calls it, with a signature of its own
@require_POST
def back_channel(request: HttpRequest) -> HttpResponse:
    """End the sessions that a logout token of the provider names."""
    oidc = provider()
    try:
        logout.sign_out(request, oidc, request.POST.get("logout_token", "")[:MAX_LOGOUT_TOKEN])
    except SignInRefused as problem:
        about = {"reason": problem.message, "detail": problem.detail}
        note("provider sign-out refused", is_kept=False, **about)
        status = problem.status if problem.status == HTTPStatus.TOO_MANY_REQUESTS else 400
        answer = {"error": "invalid_request", "error_description": problem.message}
        return JsonResponse(answer, status=status)
    return HttpResponse()


@never_cache
@login_required
def identity(request: HttpRequest) -> HttpResponse:
    """Show which person of the provider the account is connected with; a password connects it."""
    oidc, user = provider(), user_of(request)
    error = code_error = connect = ""
    request.session.pop(MAY_LINK, None)
    if request.method == "POST":
        error = password_problem(request, user)
        code_error = "" if error else _code_problem(request, user)
        if not (error or code_error):
            connect = token_urlsafe(32)
            request.session[MAY_LINK] = {"value": connect, "at": time.time()}
    context: dict[str, Any] = {
        "provider": oidc.name,
        "identity": Identity.objects.filter(user=user, issuer=oidc.issuer).first(),
        "connect": connect,
        "has_second_factor": second_factor.is_set(user),
        "error": error,
        "code_error": code_error,
    }
    status = 422 if error or code_error else 200
    return render(request, "dashboard/account/identity.html", context, status=status)


@require_POST
@login_required
def disconnect(request: HttpRequest) -> HttpResponse:
    """End the connection; the password must be right, so that a way to sign in remains."""
    oidc, user = provider(), user_of(request)
    if problem := password_problem(request, user):
        messages.error(request, problem)
        return redirect(PAGE)
    if accounts.unlink(Identity.objects.filter(user=user, issuer=oidc.issuer)):
        messages.success(request, f"No longer connected with {oidc.name}.")
    return redirect(PAGE)


def _code_problem(request: HttpRequest, user: User) -> str:
    """Return what is wrong with the code of a form; empty: it is right, or none is needed."""
    if not second_factor.is_set(user):
        return ""
    try:
        second_factor.accept(user, request.POST.get("code", "")[:100], request)
    except DomainError as problem:
        return problem.message
    return ""


def _may_link(request: HttpRequest) -> bool:
    """Whether a person has come by the link that was shown after the password; it is used once.

    Another site can lead a browser to this address, but does not know the value in the link.
    """
    kept: Any = request.session.get(MAY_LINK)
    given = request.GET.get("connect", "")
    if not request.user.is_authenticated or not kept:
        return False
    if not constant_time_compare(given, kept["value"]):
        return False
    del request.session[MAY_LINK]
    return bool(0 <= time.time() - kept["at"] <= MAY_LINK_SECONDS)


def refused(request: HttpRequest, problem: SignInRefused, to: str = "") -> HttpResponse:
    """Show why a sign-in by the provider ended, on the page to try again. `to`: where it leads."""
    about = {"reason": problem.message, "detail": problem.detail}
    note("provider sign-in refused", is_kept=False, **about)
    if request.user.is_authenticated:
        messages.error(request, problem.message)
        return redirect(PAGE)
    context = {
        "form": SignInForm(request),
        "provider": provider().name,
        "error": problem.message,
        "next": to,
    }
    response = render(request, "dashboard/account/login.html", context, status=problem.status)
    keep_quiet(response)
    return response
