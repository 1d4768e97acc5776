"""Which person a request is of, for the limits that the gateway sets for each person."""

from collections.abc import Callable, Mapping
from hashlib import blake2b

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.http import HttpRequest
from django.http.cookie import parse_cookie
from django.http.response import HttpResponseBase

from trainops.gateway.clients import Proof
from trainops.gateway.gateway import PROVED
from trainops.http.models import Token, TokenScope


def of_header(environ: Mapping[str, object]) -> str:
    """Return a digest of the token of the Authorization header; "" where there is none."""
    return _digest("token", str(environ.get("HTTP_AUTHORIZATION", "")).strip().rpartition(" ")[2])


def of_session(environ: Mapping[str, object]) -> str:
    """Return a digest of the session's key; "" where there is none."""
    cookies = parse_cookie(str(environ.get("HTTP_COOKIE", "")))
    return _digest("session", cookies.get(settings.SESSION_COOKIE_NAME, ""))


def _digest(kind: str, secret: str) -> str:
    text = f"{kind} {secret}".encode("utf-8", "surrogateescape")
    return blake2b(text, digest_size=16).hexdigest() if secret else ""


def of_token(environ: Mapping[str, object], token: Token) -> Proof:
    """A worker's token counts by itself: an admin's may have any number of workers."""
    is_worker = token.scope == TokenScope.WORKER
    person = f"worker {token.public_id}" if is_worker else f"user {token.user_id}"
    return Proof(of_header(environ), person)


def of_user(environ: Mapping[str, object], user_id: object) -> Proof:
    return Proof(of_session(environ), f"user {user_id}")


class ProofMiddleware:
    """Leaves for the gateway what a view found out about the caller."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        environ = request.META
        if isinstance(token := getattr(request, "auth", None), Token):
            environ[PROVED] = of_token(environ, token)
        elif (user := _signed_in(request)) is not None:
            environ[PROVED] = of_user(environ, user)
        return response


def _signed_in(request: HttpRequest) -> object:
    """Return the id of the user of the session that the request showed, if a view asked for it.

    A sign-in gives another session: what the request showed proves nothing.
    """
    user = getattr(request, "_cached_user", None)  # of AuthenticationMiddleware
    if user is None or not user.is_authenticated:
        return None
    session = request.session
    is_shown = session.session_key == request.COOKIES.get(settings.SESSION_COOKIE_NAME)
    return user.pk if is_shown and session.get(SESSION_KEY) == str(user.pk) else None
