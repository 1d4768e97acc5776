"""The log `trainops.access`: who signed in, used tokens, was refused or changed a role, from where.

It holds no password and no token, only the public ids of tokens.
"""

import logging
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from http import HTTPStatus

from django.contrib.auth.models import Group, User
from django.contrib.auth.signals import user_logged_out
from django.db import DatabaseError
from django.db.models.signals import m2m_changed
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone

from trainops.clock import DatabaseNow
from trainops.http import audit
from trainops.http.addresses import client_address
from trainops.http.models import Token

logger = logging.getLogger("trainops.access")
MIN_BETWEEN_USES = timedelta(minutes=1)  # that are written to the database
_request: ContextVar[HttpRequest | None] = ContextVar("request", default=None)


def note(event: str, *, is_kept: bool = True, **about: object) -> None:
    """Log an event with the caller and the address of the request in progress.

    is_kept: in the audit log, too. Not what a stranger can cause any number of times.
    """
    request = _request.get()
    caller = getattr(request, "user", None)
    name = caller.get_username() if caller is not None and caller.is_authenticated else ""
    address = client_address(request.META) if request else ""
    if is_kept:
        audit.record(event, actor=name, address=address, **about)
    words = {"by": name or "-", "from": address or "-", **about}
    logger.info("%s %s", event, " ".join(f"{key}={_word(value)}" for key, value in words.items()))


def _word(value: object) -> str:
    """Return the value as one word; one with spaces could be taken for several."""
    text = f"{value!s:.200}"
    return repr(text) if {*" ='\""} & {*text} else text


class AccessLogMiddleware:
    """Logs refused requests, and lets `note` know the request."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        reset = _request.set(request)
        try:
            response = self.get_response(request)
            _note_use(getattr(request, "auth", None), client_address(request.META))
            if event := _refused(request, response):
                note(event, is_kept=False, method=request.method, path=request.path)
        finally:
            _request.reset(reset)
        return response


def _note_use(token: object, address: str) -> None:
    """Write when and from where a token was used. The response does not depend on it."""
    if not isinstance(token, Token):
        return
    last = token.last_used_at
    if last is not None and abs(timezone.now() - last) < MIN_BETWEEN_USES:
        return
    row = Token.objects.filter(pk=token.pk)
    try:
        is_first = row.filter(first_used_at=None).update(first_used_at=DatabaseNow())
        row.update(last_used_at=DatabaseNow(), last_used_from=address[:45])
        if is_first:
            note("token used first", token=token.public_id)
    except DatabaseError as error:
        logger.warning("the use of the token %s was not written: %s", token.public_id, error)


def _refused(request: HttpRequest, response: HttpResponseBase) -> str:
    if response.status_code == HTTPStatus.FORBIDDEN:
        return "permission refused"
    scheme = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")[0].lower()
    is_token = scheme in ("bearer", "token")
    is_refused = response.status_code == HTTPStatus.UNAUTHORIZED
    return "token refused" if is_token and is_refused else ""


def connect() -> None:
    """Log sign-outs and changes of roles, wherever they are made."""
    user_logged_out.connect(_signed_out, dispatch_uid="access_log.signed_out")
    m2m_changed.connect(_roles_changed, sender=User.groups.through, dispatch_uid="access_log.roles")


def _signed_out(sender: object, request: object, user: User | None, **_: object) -> None:
    if user is not None:
        note("sign-out", user=user.get_username())


def _roles_changed(
    sender: object, instance: User | Group, action: str, pk_set: set[int] | None, **_: object
) -> None:
    change = {"post_add": "given", "post_remove": "taken", "pre_clear": "taken"}.get(action)
    if change is None or (pk_set is not None and not pk_set):
        return
    if isinstance(instance, User):
        groups = instance.groups.all() if pk_set is None else Group.objects.filter(pk__in=pk_set)
        people, roles = [instance], list(groups)
    else:
        members = instance.user_set.all() if pk_set is None else User.objects.filter(pk__in=pk_set)
        people, roles = list(members), [instance]
    for user in people:
        for role in roles:
            note(f"role {change}", user=user.get_username(), role=role.name)
