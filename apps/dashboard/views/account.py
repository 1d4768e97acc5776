"""Sign in and out, one's password, one's API tokens."""

from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.contrib.auth import authenticate
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm
from django.contrib.auth.views import LoginView, PasswordChangeView
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from apps.dashboard import tour
from apps.dashboard.permissions import needs, user_of
from apps.dashboard.responses import say
from trainops.http import tokens
from trainops.http.login_throttle import is_refused
from trainops.http.models import Token, TokenScope
from trainops.http.numbers import whole_number
from trainops.http.roles import Role, has_role, role_of
from trainops.person_limits import LimitReached
from trainops.text import name_problem

MAX_NAME_LENGTH, MAX_DAYS = 100, 3650


TOO_MANY = "Too many wrong passwords. Try again in five minutes."


class SignInForm(AuthenticationForm):
    """Says so when passwords are refused because too many were wrong."""

    def clean(self) -> dict[str, object]:
        if is_refused(self.request, self.cleaned_data.get("username")):
            raise ValidationError(TOO_MANY)
        return super().clean()


class SignIn(LoginView):
    template_name = "dashboard/account/login.html"
    authentication_form = SignInForm
    redirect_authenticated_user = True

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        is_first = form.get_user().last_login is None
        response = super().form_valid(form)
        if is_first:
            tour.offer(self.request)
        return response


class ChangePasswordForm(PasswordChangeForm):
    """Asks for the old password under the same limits as a sign-in."""

    def __init__(self, *, request: HttpRequest, **named: Any) -> None:
        super().__init__(**named)
        self.request = request

    def clean_old_password(self) -> str:
        name, password = self.user.get_username(), str(self.cleaned_data["old_password"])
        if is_refused(self.request, name):
            raise ValidationError(TOO_MANY)
        if authenticate(self.request, username=name, password=password) is None:
            raise ValidationError(self.error_messages["password_incorrect"])
        return password


class ChangePassword(PasswordChangeView):
    form_class = ChangePasswordForm
    template_name = "dashboard/account/password.html"
    success_url = "/account/"

    def get_form_kwargs(self) -> dict[str, Any]:
        return {**super().get_form_kwargs(), "request": self.request}

    def form_valid(self, form: PasswordChangeForm) -> HttpResponse:
        messages.success(
            self.request,
            "Password changed. All your API tokens are revoked and your other sessions "
            "are signed out.",
        )
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
