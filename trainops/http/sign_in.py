"""Sign-ins in two steps: after a right password, the session says whose code is awaited."""

import time
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import login
from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.utils.crypto import constant_time_compare
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_safe

from trainops.http import second_factor
from trainops.http.access_log import note

PENDING, SECRET = "sign_in_pending", "second_factor_secret"  # keys of sessions
PENDING_SECONDS = 600
BY_PASSWORD, BY_CODE, BY_PROVIDER = "password", "password and code", "provider"
LOGIN, CODE, SET_UP = "/login/", "/login/code", "/login/set-up"


@dataclass(frozen=True, slots=True)
class Pending:
    """A sign-in with a right password. `to`: the address that it leads to."""

    user: User
    to: str


def next_step(user: User) -> str:
    """Return the address of the step that follows a right password; empty: there is none."""
    if second_factor.is_set(user):
        return CODE
    return SET_UP if second_factor.is_required(user) else ""


def begin(request: HttpRequest, user: User, to: str) -> None:
    """Remember in a new session that the password of a user was right."""
    note("password ok", is_kept=False, user=user.get_username())
    request.session.flush()
    request.session.set_expiry(PENDING_SECONDS)
    request.session[PENDING] = {
        "user": user.pk,
        "password": user.get_session_auth_hash(),  # a new password ends this, too
        "at": time.time(),
        "to": to,
    }


def pending(request: HttpRequest) -> Pending | None:
    """Return the sign-in that this session has begun; None: none, or it is too old."""
    found: Any = request.session.get(PENDING)
    if not found or not 0 <= time.time() - found["at"] <= PENDING_SECONDS:
        return None
    user = User.objects.filter(pk=found["user"], is_active=True).first()
    if user is None or not constant_time_compare(found["password"], user.get_session_auth_hash()):
        return None
    return Pending(user, found["to"])


def complete(request: HttpRequest, user: User, *, method: str) -> bool:
    """Sign a user in to this session; return whether it is the first sign-in of the account."""
    is_first = user.last_login is None
    for name in (PENDING, SECRET):
        request.session.pop(name, None)
    request.session.set_expiry(None)  # that of sessions of signed-in people
    with transaction.atomic():
        note("sign-in ok", user=user.get_username(), method=method)
        login(request, user)
    return is_first


@require_safe
def of_admin(request: HttpRequest) -> HttpResponseBase:
    """Lead from the sign-in of the admin to that of the pages: there is one."""
    to = request.GET.get("next", "")
    if not url_has_allowed_host_and_scheme(to, allowed_hosts={request.get_host()}):
        to = "/admin/"
    if not request.user.is_authenticated:
        return redirect_to_login(to, LOGIN)
    if not request.user.is_staff:
        raise PermissionDenied("The admin requires an account with the flag is_staff.")
    return redirect(to)
