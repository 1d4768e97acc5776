"""Sign-outs that the provider reports (OpenID Connect Back-Channel Logout 1.0).

The provider sends a signed token, not a browser: a person who is signed out there, or whose account
is disabled there, loses the sessions here that began with a sign-in by the provider.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.http import HttpRequest

from trainops.clock import DatabaseNow
from trainops.http import recent_counts
from trainops.http.access_log import note
from trainops.http.models import Identity
from trainops.http.oidc import provider, reported
from trainops.http.oidc.errors import SignInRefused
from trainops.http.oidc.flow import AT_PROVIDER, PROVIDER
from trainops.oidc_settings import Oidc

MAX_MESSAGES, MESSAGES_SECONDS = 600, 60  # of one address


def sign_out(request: HttpRequest, oidc: Oidc, token: str) -> None:
    """End the sessions that a logout token names and that began before it. Raises SignInRefused.

    A token that is received again ends nothing that began meanwhile.
    """
    key = recent_counts.key_of("oidc", "logout", recent_counts.network(request))
    if recent_counts.count(key, seconds=MESSAGES_SECONDS).number > MAX_MESSAGES:
        raise SignInRefused("Too many logout tokens of this address.", status=429)
    claims = provider.logout_claims(oidc, token)
    reported.record(oidc.issuer, claims)
    ended = dict(_named(oidc, claims))
    Session.objects.filter(pk__in=ended).delete()
    users = User.objects.filter(pk__in=set(ended.values())).order_by("username")
    names = ", ".join(users.values_list("username", flat=True))
    note("signed out by provider", is_kept=bool(ended), users=names or "-", sessions=len(ended))


def _named(oidc: Oidc, claims: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Return the keys and user ids of the sessions that the claims of a logout token name.

    Sessions have no columns for what began them; they are read one by one.
    """
    users = Identity.objects.filter(issuer=oidc.issuer, subject=claims.get("sub"))
    of_subject = {str(user_id) for user_id in users.values_list("user_id", flat=True)}
    for session in Session.objects.filter(expire_date__gt=DatabaseNow()).iterator():
        data = session.get_decoded()
        if data.get(PROVIDER) != oidc.issuer:
            continue
        user_id, begun = str(data.get(SESSION_KEY)), data.get(AT_PROVIDER)
        if _is_named(begun, claims) if begun else user_id in of_subject:  # else of an older version
            yield session.pk, user_id


def _is_named(begun: Mapping[str, Any], claims: Mapping[str, Any]) -> bool:
    """Whether a session is of the subject, and of the session at the provider where both are known.

    Both times are of the clock of the provider.
    """
    subject, at_provider = claims.get("sub"), claims.get("sid")
    if begun["iat"] > claims["iat"] or subject not in (None, begun["sub"]):
        return False
    if at_provider is None or (begun["sid"] is None and subject is not None):
        return True
    return bool(begun["sid"] == at_provider)
