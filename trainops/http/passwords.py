"""Passwords: few hashes at once, and what a new password ends."""

import threading

from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User

from trainops.errors import DomainError
from trainops.http.access_log import note
from trainops.http.models import ServiceAccount, Token

MAX_HASHES, RETRY_SECONDS = 2, 2
_slots = threading.BoundedSemaphore(MAX_HASHES)


class TooManyPasswords(DomainError):
    """More passwords are being checked at once than this process has slots for."""

    def __init__(self) -> None:
        super().__init__(
            "TOO_MANY_PASSWORDS",
            f"Too many passwords are being checked; allowed at once: {MAX_HASHES}. Try again in "
            f"{RETRY_SECONDS} seconds.",
            {"allowed": MAX_HASHES, "retry_after_seconds": RETRY_SECONDS},
            status=503,
            retry_after_seconds=RETRY_SECONDS,
        )


class LimitedHasher(PBKDF2PasswordHasher):
    """Django's default, at most two at once in a process: each takes a core for half a second.

    Requests wait for it in the gateway, where that costs no thread.
    """

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        if not _slots.acquire(blocking=False):
            raise TooManyPasswords
        try:
            return super().encode(password, salt, iterations)
        finally:
            _slots.release()


class RevokesTokens:
    """A password validator, which Django tells of each new password: page, admin, command line.

    The other sessions of the person end as well, by Django's hash of the password in a session.
    """

    def validate(self, password: str, user: User | None = None) -> None:
        pass

    def get_help_text(self) -> str:
        return "A new password revokes all API tokens of the account and ends its other sessions."

    def password_changed(self, password: str, user: User | None = None) -> None:
        if user is not None:
            num_revoked, _ = Token.objects.filter(user=user).delete()
            ServiceAccount.objects.filter(user=user).delete()  # a user can sign in to it now
            note("password set", user=user.get_username(), tokens_revoked=num_revoked)
