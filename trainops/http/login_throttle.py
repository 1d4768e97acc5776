"""Throttle logins: failures are counted in the database, by address and by address and name.

Never by name alone, so that no client locks out a person at another address. A right password
forgets the failures of the name, not those of the address.
"""

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.http import HttpRequest

from trainops.clock import DatabaseNow
from trainops.http import recent_counts, second_factor, sign_in
from trainops.http.access_log import note
from trainops.http.models import RecentCount

MAX_FAILURES, MAX_FAILURES_OF_ADDRESS, FORGET_SECONDS = 10, 50, 300


class LoginThrottle(ModelBackend):
    """Refuses for some minutes after several wrong passwords: pages, Basic and bodies.

    A right password is not enough where the account has, or needs, a second factor. That is decided
    here, so that no place that checks a password can forget it.
    """

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        *,
        code: str | None = None,
        is_first_step: bool = False,
        **named: object,
    ) -> User | None:
        """Return the user of a right password and code; None: the name or the password is wrong.

        is_first_step: the caller asks for the code itself afterwards, or for no access. Raises
        PermissionDenied (too many wrong passwords), and what `second_factor.require_code` raises.
        """
        if username is None or password is None:
            return None
        if "\x00" in username + password:  # no name and no password of anybody's
            return None
        if is_refused(request, username):
            raise PermissionDenied("Too many wrong passwords.")
        user = super().authenticate(request, username=username, password=password, **named)
        if not isinstance(user, User):
            for key in (_of_name(request, username), _of_address(request)):
                recent_counts.count(key, seconds=FORGET_SECONDS)
            note("sign-in failed", is_kept=False, user=username)
            return None
        RecentCount.objects.filter(pk=_of_name(request, username)).delete()
        if not is_first_step:
            second_factor.require_code(user, code, request)
            is_by_code = bool(code) and second_factor.is_set(user)
            method = sign_in.BY_CODE if is_by_code else sign_in.BY_PASSWORD
            note("sign-in ok", user=username, method=method)
        return user


def is_refused(request: HttpRequest | None, username: str | None) -> bool:
    """Whether passwords for this name from this address are refused unread, which is logged."""
    too_many = Q(pk=_of_name(request, username or ""), number__gte=MAX_FAILURES)
    too_many |= Q(pk=_of_address(request), number__gte=MAX_FAILURES_OF_ADDRESS)
    refused = RecentCount.objects.filter(too_many, expires_at__gt=DatabaseNow()).exists()
    if refused:
        note("sign-in throttled", is_kept=False, user=username)
    return refused


def _of_name(request: HttpRequest | None, username: str) -> str:
    return recent_counts.key_of(recent_counts.network(request), username)


def _of_address(request: HttpRequest | None) -> str:
    return recent_counts.key_of(recent_counts.network(request))
