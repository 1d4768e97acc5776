"""A sign-in by the provider: from the button to the callback, both in one session of a browser."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from secrets import token_urlsafe
from typing import Any

from django.contrib.auth import logout
from django.contrib.auth.models import User
from django.contrib.sessions.backends.base import UpdateError
from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from trainops.http import recent_counts, sign_in
from trainops.http.oidc import accounts, provider, reported
from trainops.http.oidc.errors import SignInRefused
from trainops.oidc_settings import Oidc

BEGUN, PROVIDER = "oidc_begun", "oidc_issuer"  # keys of sessions
AT_PROVIDER = "oidc_session"  # likewise: sub, sid and iat of the ID token
CALLBACK, START, SIGN_OUT = "/login/oidc/callback", "/login/oidc", "/login/oidc/sign-out"
BEGUN_SECONDS = 600
MAX_STARTS, STARTS_SECONDS = 30, 60  # of one address
MAX_TEXT = 4000  # of a parameter of the callback


@dataclass(frozen=True, slots=True)
class FinishedSignIn:
    """Where a sign-in leads. `is_first`: the first one of the account; `is_linked`: no sign-in."""

    to: str
    is_first: bool = False
    is_linked: bool = False


def begin(request: HttpRequest, oidc: Oidc, to: str, *, links: bool = False) -> str:
    """Return the address at the provider. `links`: to connect the account of the caller.

    Raises SignInRefused.
    """
    _count(request, "sign-ins")
    begun = {"state": token_urlsafe(32), "nonce": token_urlsafe(32), "verifier": token_urlsafe(48)}
    address = provider.authorization_address(oidc, callback=_callback(request), **begun)
    if not request.user.is_authenticated:
        request.session.set_expiry(BEGUN_SECONDS)
    request.session[BEGUN] = {
        **begun,
        "at": time.time(),
        "to": to,
        "links": request.user.pk if links else None,
    }
    return address


def finish(request: HttpRequest, oidc: Oidc) -> FinishedSignIn:
    """Sign in the person whom the provider has sent back. Raises SignInRefused."""
    begun = _taken(request)
    if not begun or not 0 <= time.time() - begun["at"] <= BEGUN_SECONDS:
        raise SignInRefused("This sign-in was not begun here, or it took too long. Try again.")
    given = {name: str(text)[:MAX_TEXT] for name, text in request.GET.items()}
    if not constant_time_compare(given.get("state", ""), begun["state"]):
        raise SignInRefused("The answer is not of the sign-in that was begun here. Try again.")
    if given.get("iss", oidc.issuer) != oidc.issuer:
        raise SignInRefused("The answer is of another provider.", detail=f"iss {given['iss']!r}")
    if "error" in given:
        raise SignInRefused(
            f"{oidc.name} refused the sign-in: {given['error'][:60]}.",
            detail=given.get("error_description", "")[:300],
        )
    tokens = provider.exchange(
        oidc, given.get("code", ""), callback=_callback(request), verifier=begun["verifier"]
    )
    claims = provider.claims(oidc, tokens, nonce=begun["nonce"])
    if begun["links"] is not None:
        return _link(request, oidc, claims, begun["links"])
    user = accounts.sign_in(oidc, claims)
    is_first = sign_in.complete(request, user, method=sign_in.BY_PROVIDER)
    request.session[PROVIDER] = oidc.issuer
    at_provider = {name: claims.get(name) for name in ("sub", "sid", "iat")}
    request.session[AT_PROVIDER] = at_provider
    # The roles are those of the groups at the sign-in, so it must not be long ago.
    request.session.set_expiry(timezone.now() + timedelta(hours=oidc.session_hours))
    _store(request, oidc, at_provider)
    return FinishedSignIn(begun["to"], is_first)


def _store(request: HttpRequest, oidc: Oidc, at_provider: Mapping[str, Any]) -> None:
    """Store the session of a sign-in, unless its end was reported since the ID token was issued.

    Raises SignInRefused.
    """
    ended = SignInRefused("The provider has ended this sign-in meanwhile. Sign in again.")
    try:
        request.session.save()
    except UpdateError:  # a report has ended it already
        logout(request)
        raise ended from None
    if reported.has_ended(oidc.issuer, at_provider):
        logout(request)
        raise ended


def sign_out_address(request: HttpRequest, oidc: Oidc) -> str:
    """Return the address that ends the session at the provider; empty: it has none.

    Raises SignInRefused.
    """
    _count(request, "sign-outs")
    address = provider.published(oidc).address("end_session_endpoint")
    if not address:
        return ""
    back = request.build_absolute_uri(sign_in.LOGIN)
    query = {"client_id": oidc.client_id, "post_logout_redirect_uri": back}
    return provider.with_query(address, query)


def _count(request: HttpRequest, what: str) -> None:
    """Count what may ask the provider. Raises SignInRefused: there was too much of one address."""
    key = recent_counts.key_of("oidc", what, recent_counts.network(request))
    if recent_counts.count(key, seconds=STARTS_SECONDS).number > MAX_STARTS:
        message = f"Too many {what} were begun from this address. Try again in a minute."
        raise SignInRefused(message, status=429)


def destination(request: HttpRequest) -> str:
    """Return the address that the sign-in of this session leads to; empty: none is begun."""
    begun: Any = request.session.get(BEGUN)
    return str(begun["to"]) if begun else ""


def _taken(request: HttpRequest) -> Any:
    """Return what this session has begun: once, also where the response is an error (5xx)."""
    begun: Any = request.session.pop(BEGUN, None)
    try:
        if begun:
            request.session.save()
    except UpdateError:  # signed out meanwhile
        return None
    return begun


def _link(request: HttpRequest, oidc: Oidc, claims: Any, user_id: int) -> FinishedSignIn:
    user = request.user
    if not isinstance(user, User) or user.pk != user_id:
        raise SignInRefused("The user of this session has changed. Sign in and connect again.")
    accounts.link(oidc, claims, user)
    return FinishedSignIn("/account/", is_linked=True)


def _callback(request: HttpRequest) -> str:
    return request.build_absolute_uri(CALLBACK)
