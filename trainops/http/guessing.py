"""Passwords are slow to guess, at every door: pages, admin, Basic, and the body of a request."""

from hashlib import blake2b
from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

MAX_FAILURES, FORGET_SECONDS = 10, 300


class SlowToGuess(ModelBackend):
    """Refuses for some minutes after several wrong passwords for one name from one address.

    By name and address, so that nobody can shut out somebody else.
    """

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **named: Any,
    ) -> User | None:
        if is_refused(request, username):
            raise PermissionDenied("Too many wrong passwords.")
        user = super().authenticate(request, username=username, password=password, **named)
        if user is None and username is not None:
            cache.add(_key(request, username), 0, FORGET_SECONDS)
            cache.incr(_key(request, username))
        return user


def is_refused(request: HttpRequest | None, username: str | None) -> bool:
    return bool(cache.get(_key(request, username or ""), 0) >= MAX_FAILURES)


def _key(request: HttpRequest | None, username: str) -> str:
    # The address of the connection: a header would be the guesser's to choose.
    address = request.META.get("REMOTE_ADDR", "") if request else ""
    name = blake2b(f"{address}\n{username}".encode("utf-8", "replace"), digest_size=16)
    return f"sign-in:{name.hexdigest()}"
