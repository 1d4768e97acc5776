"""Sign in and out, one's password, one's API tokens."""

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import authenticate
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView, LogoutView, PasswordChangeView
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from apps.dashboard import tour
from apps.dashboard.permissions import needs, user_of
from apps.dashboard.responses import say
from trainops.http import second_factor, sign_in, tokens
from trainops.http.login_throttle import is_refused
from trainops.http.models import Identity, Token, TokenScope
from trainops.http.numbers import whole_number
from trainops.http.oidc import flow
from trainops.http.roles import Role, has_role, role_of
from trainops.person_limits import LimitReached
from trainops.text import name_problem

MAX_NAME_LENGTH, MAX_DAYS = 100, 3650


TOO_MANY = "Too many wrong passwords. Try again in five minutes."


def check_password(request: HttpRequest, username: str, password: str) -> User | None:
    """Return the user of a right password; None: it is wrong.

    The caller asks for a second factor itself. Raises ValidationError: too many were wrong.
    """
    if is_refused(request, username):
        raise ValidationError(TOO_MANY)
    found = authenticate(request, username=username, password=password, is_first_step=True)
    return found if isinstance(found, User) else None


def password_problem(request: HttpRequest, user: User) -> str:
    """Return what is wrong with the password of a form; empty: it is right."""
    try:
        password = request.POST.get("password", "")
        is_right = check_password(request, user.get_username(), password) is not None
    except ValidationError as problem:
        return str(problem.messages[0])
    return "" if is_right else "The password is wrong."


class SignInForm(AuthenticationForm):
    """Says so when passwords are refused because too many were wrong."""

    def clean(self) -> dict[str, object]:
        given = self.cleaned_data
        if "username" in given and "password" in given and self.request is not None:
            self.user_cache = check_password(self.request, given["username"], given["password"])
            if self.user_cache is None:
                raise self.get_invalid_login_error()
            self.confirm_login_allowed(self.user_cache)
        return given


class SignIn(LoginView):
    template_name = "dashboard/account/login.html"
    authentication_form = SignInForm
    redirect_authenticated_user = True

    def get_context_data(self, **named: Any) -> dict[str, Any]:
        provider = settings.OIDC.name if settings.OIDC else ""
        return {**super().get_context_data(**named), "provider": provider}

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        user, to = form.get_user(), self.get_success_url()
        if step := sign_in.next_step(user):
            sign_in.begin(self.request, user, to)
            return redirect(step)
        complete(self.request, user, method=sign_in.BY_PASSWORD)
        return redirect(to)


def complete(request: HttpRequest, user: User, *, method: str = sign_in.BY_CODE) -> None:
    """Sign in; the first time, offer the tour."""
    if sign_in.complete(request, user, method=method):
        tour.offer(request)


class SignOut(LogoutView):
    """Signs out; who signed in by a provider is shown the way to sign out there, too."""

    def post(self, request: HttpRequest, *arguments: Any, **named: Any) -> HttpResponse:
        is_of_provider = flow.PROVIDER in request.session and settings.OIDC is not None
        response = super().post(request, *arguments, **named)
        return redirect(f"{sign_in.LOGIN}?signed-out") if is_of_provider else response


class ChangePasswordForm(PasswordChangeForm):
    """Asks for the old password under the same limits as a sign-in."""

    def __init__(self, *, request: HttpRequest, **named: Any) -> None:
        super().__init__(**named)
        self.request = request

    def clean_old_password(self) -> str:
        name, password = self.user.get_username(), str(self.cleaned_data["old_password"])
        if check_password(self.request, name, password) is None:
            raise ValidationError(self.error_messages["password_incorrect"])
        return password


class ChangePassword(PasswordChangeView):
    form_class = ChangePasswordForm
    template_name = "dashboard/account/password.html"
    success_url = "/account/"

    def get_form_kwargs(self) -> dict[str, Any]:
        return {**super().get_form_kwargs(), "request": self.request}

    def form_valid(self, form: PasswordChangeForm) -> HttpResponse:
        done = (
            "Password changed. All your API tokens are revoked and your other sessions "
            "are signed out."
        )
        if Identity.objects.filter(user=user_of(self.request)).exists():
            done += " The sign-in by a provider stays connected; end it on the page Account."
        messages.success(self.request, done)
        return super().form_valid(form)


@never_cache
@needs()
def account(request: HttpRequest) -> HttpResponse:
    """Who one is, and one's tokens. A new token's secret is shown in the answer, once."""
    errors: dict[str, str] = {}
    secret = ""
    if request.method == "POST":
        errors, secret = _create_token(request)
    context = {
        "role": role_of(request.user),
        "provider": settings.OIDC.name if settings.OIDC else "",
        "has_second_factor": second_factor.is_set(user_of(request)),
        "tokens": Token.objects.filter(user=user_of(request)),
        "secret": secret,
        "errors": errors,
        "given": request.POST if errors else {},
        "scopes": [
            (scope.value, scope.label)
            for scope in TokenScope
            if scope != TokenScope.WORKER or has_role(request.user, Role.ADMIN)
        ],
    }
    status = 422 if errors else 200
    return render(request, "dashboard/account/page.html", context, status=status)


@require_POST
@needs()
def revoke(request: HttpRequest, token_id: str) -> HttpResponse:
    if not tokens.revoke(Token.objects.filter(user=user_of(request), public_id=token_id)):
        return say(request, "This token no longer exists.", level="warning", to="/account/")
    return say(request, "Token revoked.", to="/account/", leave=True)


def _create_token(request: HttpRequest) -> tuple[dict[str, str], str]:
    """Return (problems by field, the new token's secret)."""
    name = request.POST.get("name", "").strip()
    days = request.POST.get("days", "").strip()
    scope = request.POST.get("scope", TokenScope.USER)
    errors = {}
    if not name or len(name) > MAX_NAME_LENGTH:
        errors["name"] = f"Enter a name of at most {MAX_NAME_LENGTH} characters."
    elif problem := name_problem(name):
        errors["name"] = problem
    num_days = whole_number(days, 1, MAX_DAYS)
    if days and num_days is None:
        errors["days"] = f"got {days[:20]!r}; must be from 1 to {MAX_DAYS}, or blank for no expiry"
    if scope not in TokenScope.values:
        errors["scope"] = f"got {scope[:20]!r}; must be one of {', '.join(TokenScope.values)}"
    elif scope == TokenScope.WORKER and not has_role(request.user, Role.ADMIN):
        errors["scope"] = "Only admins can create worker tokens."
    if errors:
        return errors, ""
    lifetime = timedelta(days=num_days) if num_days else None
    try:
        _, secret = tokens.create(user_of(request), name=name, scope=scope, lifetime=lifetime)
    except LimitReached as reached:
        return {"name": reached.message}, ""
    return {}, secret
