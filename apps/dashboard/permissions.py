"""Who may open a page: signed in, and with a role."""

from collections.abc import Callable
from functools import wraps

from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, JsonResponse
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
            return view(request, *args, **kwargs)

        return guarded

    return decorate


def _sign_in(request: HttpRequest) -> HttpResponseBase:
    if is_fetch(request):
        return JsonResponse({"level": "error", "message": "You were signed out."}, status=401)
    address = request.get_full_path()
    return redirect_to_login(address if len(address) <= MAX_ADDRESS else "/")


def _explain(given: Role | None, needed: Role) -> str:
    if given is None:
        return f"Your account has no role yet. An admin can assign one: {', '.join(Role)}."
    return f"This requires the role {needed}; your account has the role {given}."
