"""Throttle logins: failures are counted in the database, by address and by address and name.

Of IPv6 a /64 counts as one address: it is what one customer gets.

Never by name alone, so that no client locks out a person at another address. A right password
forgets the failures of the name, not those of the address.
"""

from hashlib import blake2b

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import F, Q
from django.http import HttpRequest

from trainops.clock import DatabaseNow, seconds_from_now
from trainops.gateway.clients import network_of
from trainops.http.access_log import note
from trainops.http.addresses import client_address
from trainops.http.models import SignInFailures

MAX_FAILURES, MAX_FAILURES_OF_ADDRESS, FORGET_SECONDS = 10, 50, 300


class LoginThrottle(ModelBackend):
    """Refuses for some minutes after several wrong passwords: pages, admin, Basic and bodies."""

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **named: object,
    ) -> User | None:
        if username is None or password is None:
            return None
        if "\x00" in username + password:  # no name and no password of anybody's
            return None
        if is_refused(request, username):
            raise PermissionDenied("Too many wrong passwords.")
        user = super().authenticate(request, username=username, password=password, **named)
        if user is None:
            for key in (_of_name(request, username), _of_address(request)):
                _count(key)
            note("sign-in failed", user=username)
        else:
            SignInFailures.objects.filter(pk=_of_name(request, username)).delete()
            note("sign-in ok", user=username)
        return user


def is_refused(request: HttpRequest | None, username: str | None) -> bool:
    """Whether passwords for this name from this address are refused unread, which is logged."""
    too_many = Q(pk=_of_name(request, username or ""), num_failures__gte=MAX_FAILURES)
    too_many |= Q(pk=_of_address(request), num_failures__gte=MAX_FAILURES_OF_ADDRESS)
    refused = SignInFailures.objects.filter(too_many, expires_at__gt=DatabaseNow()).exists()
    if refused:
        note("sign-in throttled", user=username)
    return refused


def forget_expired() -> int:
    """Delete counters that have expired."""
    return SignInFailures.objects.filter(expires_at__lte=DatabaseNow()).delete()[0]


def _count(key: str) -> None:
    ends = seconds_from_now(FORGET_SECONDS)
    SignInFailures.objects.bulk_create(
        [SignInFailures(pk=key, expires_at=ends)], ignore_conflicts=True
    )
    rows = SignInFailures.objects.filter(pk=key)
    rows.filter(expires_at__lte=DatabaseNow()).update(num_failures=0, expires_at=ends)
    rows.update(num_failures=F("num_failures") + 1)


def _of_name(request: HttpRequest | None, username: str) -> str:
    return _key(_address(request), username)


def _of_address(request: HttpRequest | None) -> str:
    return _key(_address(request))


def _address(request: HttpRequest | None) -> str:
    return network_of(client_address(request.META)) if request else ""


def _key(*parts: str) -> str:
    return blake2b("\n".join(parts).encode("utf-8", "replace"), digest_size=16).hexdigest()
