"""The second factor: asked for at sign-in, set up, replaced and removed."""

from dataclasses import dataclass
from typing import Any

import segno
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.http.request import split_domain_port
from django.shortcuts import redirect, render
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from apps.dashboard.permissions import user_of
from apps.dashboard.views.account import complete, password_problem
from trainops.errors import DomainError
from trainops.http import encryption, second_factor, sign_in
from trainops.http.models import RecoveryCode

PAGE = "/account/second-factor"
REFUSED = 422  # the status of a form that is shown again


@dataclass(frozen=True)
class SetUp:
    """What the page of a new second factor shows."""

    secret: str
    qr: SafeString

    @property
    def groups(self) -> str:
        """Return the secret in groups of four, as people type it."""
        return " ".join(self.secret[start : start + 4] for start in range(0, len(self.secret), 4))


@never_cache
def code(request: HttpRequest) -> HttpResponse:
    """Ask for the code that completes a sign-in."""
    waiting = sign_in.pending(request)
    if waiting is None:
        return _again(request)
    error = ""
    if request.method == "POST":
        try:
            second_factor.accept(waiting.user, request.POST.get("code", "")[:100], request)
        except DomainError as problem:
            error = problem.message
        else:
            complete(request, waiting.user)
            return redirect(waiting.to)
    context = {"username": waiting.user.get_username(), "error": error}
    status = REFUSED if error else 200
    return render(request, "dashboard/account/code.html", context, status=status)


@never_cache
def required(request: HttpRequest) -> HttpResponse:
    """Have a person without a second factor set it up, which completes the sign-in."""
    waiting = sign_in.pending(request)
    if waiting is None:
        return _again(request)
    if second_factor.is_set(waiting.user):  # in another window
        return redirect(sign_in.CODE)
    errors: dict[str, str] = {}
    if request.method == "POST":
        codes = _set_up(request, waiting.user, errors)
        if codes:
            complete(request, waiting.user)
            return _show_codes(request, codes, waiting.to, template="standalone.html")
    return _show_set_up(request, waiting.user, errors, is_required=True)


@never_cache
@login_required
def page(request: HttpRequest) -> HttpResponse:
    """Show the second factor of the caller, or set it up, or with ?replace another one."""
    user = user_of(request)
    if not user.has_usable_password():
        return render(request, "dashboard/account/second_factor.html", {"has_password": False})
    if second_factor.is_set(user) and "replace" not in request.GET:
        return _show_status(request, user)
    errors: dict[str, str] = {}
    if request.method == "POST" and _password_is_right(request, user, errors):
        codes = _set_up(request, user, errors, is_replaced=second_factor.is_set(user))
        if codes:
            return _show_codes(request, codes, PAGE)
    return _show_set_up(request, user, errors)


@require_POST
@login_required
def remove(request: HttpRequest) -> HttpResponse:
    user, errors = user_of(request), dict[str, str]()
    if not _may_change(request, user, errors):
        return _show_status(request, user, errors, of="remove")
    try:
        second_factor.remove(user, is_by_owner=True)
    except DomainError as problem:
        messages.error(request, problem.message)
        return redirect(PAGE)
    messages.success(request, "Second factor removed. A password is enough to sign in.")
    return redirect("/account/")


@never_cache
@require_POST
@login_required
def recovery_codes(request: HttpRequest) -> HttpResponse:
    """Show new recovery codes, once."""
    user, errors = user_of(request), dict[str, str]()
    if not _may_change(request, user, errors):
        return _show_status(request, user, errors, of="codes")
    try:
        codes = second_factor.renew_recovery_codes(user)
    except DomainError as problem:
        messages.error(request, problem.message)
        return redirect(PAGE)
    return _show_codes(request, codes, PAGE)


def _again(request: HttpRequest) -> HttpResponse:
    if request.user.is_authenticated:
        return redirect("/")
    return redirect(f"{sign_in.LOGIN}?late")


def _password_is_right(request: HttpRequest, user: User, errors: dict[str, str]) -> bool:
    if problem := password_problem(request, user):
        errors["password"] = problem
    return not problem


def _may_change(request: HttpRequest, user: User, errors: dict[str, str]) -> bool:
    """Whether the password and a code of the present second factor are right."""
    if not _password_is_right(request, user, errors):
        return False
    return not second_factor.is_set(user) or _current_code_is_right(request, user, errors)


def _current_code_is_right(request: HttpRequest, user: User, errors: dict[str, str]) -> bool:
    """Whether a code of the present second factor is right, which it is once."""
    try:
        second_factor.accept(user, request.POST.get("current_code", "")[:100], request)
    except DomainError as problem:
        errors["current_code"] = problem.message
    return "current_code" not in errors


def _set_up(
    request: HttpRequest, user: User, errors: dict[str, str], *, is_replaced: bool = False
) -> list[str]:
    """Store the secret of this session if the code confirms it; return recovery codes.

    `is_replaced`: it needs a code of the present second factor, too, which is used last.
    """
    secret, code = _secret(request, user), request.POST.get("code", "")
    try:
        second_factor.require_confirmed(secret, code)
        if is_replaced and not _current_code_is_right(request, user, errors):
            return []
        codes = second_factor.set_up(user, secret, code)
    except second_factor.WrongCode:
        errors["code"] = (
            "The code is wrong. It must be the present one of the entry that you just added; the "
            "clock of the device must be right."
        )
        return []
    request.session.pop(sign_in.SECRET, None)
    return codes


def _secret(request: HttpRequest, user: User) -> str:
    """Return the secret that this session sets up: a new one each time that the page is opened.

    Otherwise a former user of an open session would know the secret that its owner sets up.
    """
    purpose = f"set-up of {user.pk}"
    if request.method == "POST":
        try:
            return encryption.decrypted(request.session.get(sign_in.SECRET, ""), purpose)
        except encryption.NotDecryptable:
            pass
    secret = second_factor.new_secret()
    request.session[sign_in.SECRET] = encryption.encrypted(secret, purpose)
    return secret


def _show_set_up(
    request: HttpRequest, user: User, errors: dict[str, str], *, is_required: bool = False
) -> HttpResponse:
    secret = _secret(request, user)
    host, _ = split_domain_port(request.get_host())
    drawn = segno.make(second_factor.address(user, secret, host), error="m", micro=False)
    svg = drawn.svg_inline(omitsize=True, dark="#000", light="#fff", svgclass=None, lineclass=None)
    context: dict[str, Any] = {
        "set_up": SetUp(secret, mark_safe(svg)),  # noqa: S308 - drawn here, without text
        "errors": errors,
        "is_required": is_required,
        "is_set": second_factor.is_set(user),
        "username": user.get_username(),
    }
    name = "set_up_required" if is_required else "set_up"
    status = REFUSED if errors else 200
    return render(request, f"dashboard/account/{name}.html", context, status=status)


def _show_status(
    request: HttpRequest, user: User, errors: dict[str, str] | None = None, *, of: str = ""
) -> HttpResponse:
    context = {
        "has_password": True,
        "num_codes": RecoveryCode.objects.filter(factor_id=user.pk).count(),
        "is_required": second_factor.is_required(user),
        f"problem_of_{of}": (errors or {}).get("password"),
        f"code_problem_{of}": (errors or {}).get("current_code"),
    }
    status = REFUSED if errors else 200
    return render(request, "dashboard/account/second_factor.html", context, status=status)


def _show_codes(
    request: HttpRequest, codes: list[str], to: str, *, template: str = "base.html"
) -> HttpResponse:
    context = {"codes": codes, "to": to, "template": template}
    return render(request, "dashboard/account/recovery_codes.html", context)
