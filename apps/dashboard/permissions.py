"""Who may open a page: signed in, and with a role."""

from collections.abc import Callable
from functools import wraps
from http import HTTPStatus

from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from trainops.gateway import live
from trainops.http.roles import Role, role_of

View = Callable[..., HttpResponseBase]
MAX_ADDRESS = 2000  # characters that a sign-in leads back to; Django redirects to 16,384 at most


def is_fetch(request: HttpRequest) -> bool:
    """Whether one of our scripts asks, which wants JSON or a part, not a page.

    An EventSource cannot send a header of its own.
    """
    is_stream = request.headers.get("Accept") == live.MEDIA_TYPE
    return is_stream or request.headers.get("X-Requested-With") == "fetch"


class SubjectNotFound(Http404):
    """What the page is about does not exist: scripts of a page that is open say that it is gone."""


def problem(message: str, status: int, **more: object) -> JsonResponse:
    """Answer one of our scripts, which shows the message."""
    return JsonResponse({"level": "error", "message": message, **more}, status=status)


def user_of(request: HttpRequest) -> User:
    """Return the signed-in user; `needs` admits no other."""
    user = request.user
    if not isinstance(user, User):
        raise PermissionDenied
    return user


def needs(role: Role = Role.VIEWER) -> Callable[[View], View]:
    """Let in who has at least `role`; others learn what they lack."""

    def decorate(view: View) -> View:
        @wraps(view)
        def guarded(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return _sign_in(request)
            given = role_of(request.user)
            if given is None or not given.includes(role):
                raise PermissionDenied(_explain(given, role))
            try:
                return view(request, *args, **kwargs)
            except Http404 as missing:
                if is_fetch(request):
                    is_gone = isinstance(missing, SubjectNotFound)
                    return problem(str(missing), HTTPStatus.NOT_FOUND, gone=is_gone)
                raise

        return guarded

    return decorate


def _sign_in(request: HttpRequest) -> HttpResponseBase:
    if is_fetch(request):
        return problem("You were signed out.", HTTPStatus.UNAUTHORIZED)
    address = request.get_full_path()
    return redirect_to_login(address if len(address) <= MAX_ADDRESS else "/")


def _explain(given: Role | None, needed: Role) -> str:
    if given is None:
        return f"Your account has no role yet. An admin can assign one: {', '.join(Role)}."
    return f"This requires the role {needed}; your account has the role {given}."
