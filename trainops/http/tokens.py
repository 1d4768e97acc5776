"""API tokens are created and revoked here, by whatever endpoint or page."""

from datetime import timedelta

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Q, QuerySet
from django.utils import timezone

from trainops import person_limits
from trainops.clock import DatabaseNow
from trainops.errors import DomainError
from trainops.http.access_log import note
from trainops.http.models import Token, TokenScope
from trainops.http.roles import Role, has_role
from trainops.http.serializers import TokenRequest


class TokenNotFound(DomainError):
    """`problem`: whose it is not, as "You have no token"."""

    def __init__(self, problem: str, token_id: str) -> None:
        message = f"{problem} {token_id[:40]!r}."
        super().__init__("TOKEN_NOT_FOUND", message, {"token_id": token_id[:40]}, status=404)


def create(
    user: AbstractBaseUser, *, name: str, scope: str, lifetime: timedelta | None
) -> tuple[Token, str]:
    """Return a new token, and its secret, which is stored nowhere. Raises LimitReached."""
    valid = Token.objects.filter(Q(expiry=None) | Q(expiry__gt=DatabaseNow()), user=user)
    with person_limits.one_at_a_time(user.pk):
        person_limits.require("tokens", "max_tokens_per_person", current=valid.count(), more=1)
        token, secret = Token.objects.create(user, expiry=lifetime, name=name, scope=scope)
        note("token created", user=user.get_username(), token=token.public_id, scope=scope)
    return token, secret


def create_wanted(user: AbstractBaseUser, wanted: TokenRequest) -> Token:
    """Return a new token with its secret in `token`, as a validated request describes it.

    Raises LimitReached, and DomainError: worker tokens are those of admins.
    """
    if wanted["scope"] == TokenScope.WORKER and not has_role(user, Role.ADMIN):
        message = "Worker tokens act for admins only."
        raise DomainError("PERMISSION_DENIED", message, status=403)
    expires_at = wanted["expires_at"]
    lifetime = None if expires_at is None else expires_at - timezone.now()
    token, secret = create(user, name=wanted["name"], scope=wanted["scope"], lifetime=lifetime)
    token.token = secret
    return token


def revoke(tokens: QuerySet[Token]) -> int:
    """Revoke the tokens of a query; return how many there were."""
    found = list(tokens.select_related("user"))
    num_revoked, _ = tokens.filter(pk__in=[each.pk for each in found]).delete()
    for token in found:
        note("token revoked", user=token.user.get_username(), token=token.public_id)
    return int(num_revoked)
