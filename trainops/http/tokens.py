"""API tokens are created and revoked here, by whatever endpoint or page."""

from datetime import timedelta

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Q, QuerySet

from trainops import person_limits
from trainops.clock import DatabaseNow
from trainops.http.access_log import note
from trainops.http.models import Token


def create(
    user: AbstractBaseUser, *, name: str, scope: str, lifetime: timedelta | None
) -> tuple[Token, str]:
    """Return a new token, and its secret, which is stored nowhere. Raises LimitReached."""
    valid = Token.objects.filter(Q(expiry=None) | Q(expiry__gt=DatabaseNow()), user=user)
    person_limits.require("tokens", "max_tokens_per_person", current=valid.count(), more=1)
    token, secret = Token.objects.create(user, expiry=lifetime, name=name, scope=scope)
    note("token created", user=user.get_username(), token=token.public_id, scope=scope)
    return token, secret


def revoke(tokens: QuerySet[Token]) -> int:
    """Revoke the tokens of a query; return how many there were."""
    found = list(tokens.select_related("user"))
    num_revoked, _ = tokens.filter(pk__in=[each.pk for each in found]).delete()
    for token in found:
        note("token revoked", user=token.user.get_username(), token=token.public_id)
    return int(num_revoked)
