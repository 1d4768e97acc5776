"""Limit how many passwords are tried in a body, and how many are set, in a minute."""

from abc import ABC, abstractmethod
from typing import ClassVar

from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from trainops.http import recent_counts
from trainops.http.asking import person

MAX_PASSWORDS_TRIED, MAX_PASSWORDS_SET, SECONDS = 10, 10, 60


class PasswordThrottle(BaseThrottle, ABC):
    """Allows `max_requests` in a minute; a further one is answered 429 with Retry-After."""

    max_requests: ClassVar[int]
    _seconds_left = 0.0

    @abstractmethod
    def counter(self, request: Request) -> str | None:
        """Return the key that a request is counted under; None: it is not counted."""

    def allow_request(self, request: Request, view: APIView) -> bool:
        if (key := self.counter(request)) is None:
            return True
        counted = recent_counts.count(key, seconds=SECONDS)
        self._seconds_left = counted.seconds_left
        return counted.number <= self.max_requests

    def wait(self) -> float:
        return self._seconds_left


class TriedPasswords(PasswordThrottle):
    """Slows down guessing: counts requests that bring a password in the body, by address."""

    max_requests = MAX_PASSWORDS_TRIED

    def counter(self, request: Request) -> str | None:
        if not (isinstance(request.data, dict) and "username" in request.data):
            return None
        return recent_counts.key_of("tried", recent_counts.network(request))


class SetPasswords(PasswordThrottle):
    """Limits the passwords that one person sets: each takes a core for half a second."""

    max_requests = MAX_PASSWORDS_SET

    def counter(self, request: Request) -> str | None:
        if request.method in SAFE_METHODS:
            return None
        return recent_counts.key_of("set", str(person(request).pk))
