"""Sign-ins by a provider (OpenID Connect), and which of its people an account is connected with."""

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from apps.dashboard import tour
from apps.dashboard.permissions import user_of
from apps.dashboard.responses import safe
from apps.dashboard.views.account import SignInForm, password_problem
from trainops.http.access_log import note
from trainops.http.middleware import keep_quiet
from trainops.http.models import Identity
from trainops.http.oidc import accounts, flow
from trainops.http.oidc.errors import SignInRefused
from trainops.oidc_settings import Oidc

PAGE = "/account/identity"
MAY_LINK = "oidc_may_link"  # key of sessions: the password was right


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
    links = bool(request.session.pop(MAY_LINK, False)) and request.user.is_authenticated
    if request.user.is_authenticated and not links:
        return redirect(to)
    try:
        return redirect(flow.begin(request, oidc, to, links=links))
    except SignInRefused as problem:
        return refused(request, problem)


@never_cache
@require_safe
def callback(request: HttpRequest) -> HttpResponse:
    """Sign in, or connect an account, with what the provider sent the browser back with."""
    try:
        finished = flow.finish(request, provider())
    except SignInRefused as problem:
        return refused(request, problem)
    if finished.is_linked:
        messages.success(request, f"Connected with {provider().name}.")
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
@login_required
def identity(request: HttpRequest) -> HttpResponse:
    """Show which person of the provider the account is connected with; a password connects it."""
    oidc, user = provider(), user_of(request)
    error = ""
    if request.method == "POST":
        error = password_problem(request, user)
        request.session[MAY_LINK] = not error
    context: dict[str, Any] = {
        "provider": oidc.name,
        "identity": Identity.objects.filter(user=user, issuer=oidc.issuer).first(),
        "may_link": request.method == "POST" and not error,
        "error": error,
    }
    status = 422 if error else 200
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


def refused(request: HttpRequest, problem: SignInRefused) -> HttpResponse:
    """Show why a sign-in by the provider ended, on the page to try again."""
    about = {"reason": problem.message, "detail": problem.detail}
    note("provider sign-in refused", is_kept=False, **about)
    if request.user.is_authenticated:
        messages.error(request, problem.message)
        return redirect(PAGE)
    context = {"form": SignInForm(request), "provider": provider().name, "error": problem.message}
    response = render(request, "dashboard/account/login.html", context, status=problem.status)
    keep_quiet(response)
    return response
