"""The second factor of people who sign in with a password: codes by time (TOTP), recovery codes.

A code is counted before it is compared, in the database, so that parallel guesses count, too. Codes
of an app have six digits: wrong ones are also limited for each account from everywhere. Recovery
codes have 80 bits, so that a digest protects them.
"""

import base64
import os
from hashlib import blake2b

import pyotp
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest
from pyotp.exceptions import OTPVerificationError

from trainops.errors import DomainError
from trainops.http import encryption, recent_counts
from trainops.http.access_log import note
from trainops.http.models import RecentCount, RecoveryCode, SecondFactor
from trainops.http.roles import Role, has_role
from trainops.sign_in_settings import SECOND_FACTOR, Requirement

ISSUER = "trainops"
TOLERANCE = 1  # periods of 30 s that a clock may be wrong
MAX_WRONG, FORGET_SECONDS = 5, 300
MAX_WRONG_OF_ACCOUNT, FORGET_ACCOUNT_SECONDS = 30, 3600
NUM_RECOVERY_CODES, RECOVERY_BYTES, GROUP = 10, 10, 4
APP_CODE_LENGTH, RECOVERY_LENGTH = 6, 16


class CodeRequired(DomainError):
    """The password is right, and a code of the second factor is missing."""

    def __init__(self) -> None:
        super().__init__(
            "CODE_REQUIRED",
            "This account has a second factor: send username and password in the body, and in the "
            "field `code` a code of the authenticator app or a recovery code.",
            status=401,
        )


class SetUpRequired(DomainError):
    """The installation requires a second factor, and the account has none."""

    def __init__(self) -> None:
        super().__init__(
            "SECOND_FACTOR_REQUIRED",
            "This installation requires a second factor for this account. Sign in on the page "
            "/login/ once to set it up.",
            status=403,
        )


class WrongCode(DomainError):
    def __init__(self) -> None:
        message = "The code is wrong, too old, or was used already."
        super().__init__("WRONG_CODE", message, status=401)


class TooManyCodes(DomainError):
    """Codes for this account are refused unread."""

    def __init__(self, seconds_left: float) -> None:
        seconds = max(1, round(seconds_left))
        minutes = -(-seconds // 60)
        super().__init__(
            "TOO_MANY_CODES",
            f"Too many wrong codes. Try again in {minutes} minute{'s' if minutes > 1 else ''}.",
            {"retry_after_seconds": seconds},
            status=429,
            retry_after_seconds=seconds,
        )


class NoSecondFactor(DomainError):
    def __init__(self, username: str) -> None:
        message = f"{username} has no second factor."
        super().__init__("NO_SECOND_FACTOR", message, {"username": username}, status=404)


class StillRequired(DomainError):
    """A person removes what the installation requires."""

    def __init__(self) -> None:
        message = f"{SECOND_FACTOR} requires a second factor for this account; it can be replaced."
        super().__init__("SECOND_FACTOR_REQUIRED", message, status=409)


def is_set(user: User) -> bool:
    return SecondFactor.objects.filter(user=user).exists()


def is_required(user: User) -> bool:
    """Whether the installation requires a second factor where this user signs in by password."""
    match settings.SECOND_FACTOR:
        case Requirement.ALL:
            return True
        case Requirement.ADMINS:
            return has_role(user, Role.ADMIN)
        case _:
            return False


def new_secret() -> str:
    """Return a random secret of 160 bits, as authenticator apps take it (base32)."""
    return pyotp.random_base32()


def address(user: User, secret: str, host: str) -> str:
    """Return the otpauth: address of a secret, which an app reads from a QR code."""
    issuer = f"{ISSUER} {host}".replace(":", "-")
    return pyotp.TOTP(secret).provisioning_uri(name=user.get_username(), issuer_name=issuer)


def require_confirmed(secret: str, code: str) -> int:
    """Return the period of a code that confirms a secret. Raises WrongCode."""
    period = _period_of(secret, _plain(code))
    if period is None:
        raise WrongCode
    return period


def set_up(user: User, secret: str, code: str) -> list[str]:
    """Store a secret that a code confirms, instead of a present one; return new recovery codes.

    Raises WrongCode.
    """
    period = require_confirmed(secret, code)
    stored = {"secret": encryption.encrypted(secret, _purpose(user.pk)), "last_period": period}
    with transaction.atomic():
        factor, is_new = SecondFactor.objects.update_or_create(user=user, defaults=stored)
        note("second factor set" if is_new else "second factor replaced", user=user.get_username())
        return _renew_codes(factor)


def renew_recovery_codes(user: User) -> list[str]:
    """Return new recovery codes; the former ones are refused from now on. Raises NoSecondFactor."""
    with transaction.atomic():
        factor = SecondFactor.objects.select_for_update().filter(user=user).first()
        if factor is None:
            raise NoSecondFactor(user.get_username())
        note("recovery codes made", user=user.get_username())
        return _renew_codes(factor)


def remove(user: User, *, is_by_owner: bool = False) -> None:
    """Remove the second factor with its recovery codes.

    Raises NoSecondFactor, and StillRequired where its owner may only replace it.
    """
    if is_by_owner and is_required(user):
        raise StillRequired
    with transaction.atomic():
        if not SecondFactor.objects.filter(user=user).delete()[0]:
            raise NoSecondFactor(user.get_username())
        note("second factor removed", user=user.get_username())


def require_code(user: User, code: str | None, request: HttpRequest | None) -> None:
    """Return where a password is enough, or the code is right: it is accepted once.

    Raises CodeRequired, SetUpRequired, WrongCode, TooManyCodes.
    """
    if is_set(user):
        if not code:
            raise CodeRequired
        accept(user, code, request)
    elif is_required(user):
        raise SetUpRequired


def accept(user: User, code: str, request: HttpRequest | None) -> None:
    """Accept a code of the app, or a recovery code, which is then used. Raises DomainError."""
    plain = _plain(code)
    is_recovery = len(plain) == RECOVERY_LENGTH
    here = recent_counts.key_of("code", str(user.pk), recent_counts.network(request))
    anywhere = recent_counts.key_of("code", str(user.pk))
    _count(here, MAX_WRONG, FORGET_SECONDS, user)
    if is_recovery:
        is_right = _use_recovery_code(user, plain)
    else:
        _count(anywhere, MAX_WRONG_OF_ACCOUNT, FORGET_ACCOUNT_SECONDS, user)
        is_right = _use_app_code(user, plain)
    if not is_right:
        note("wrong code", user=user.get_username())
        raise WrongCode
    RecentCount.objects.filter(pk=here).delete()
    if not is_recovery:
        recent_counts.take_back(anywhere)


def encrypt_anew() -> int:
    """Encrypt with the newest secret key what an older one has encrypted; return how many."""
    num = 0
    for factor in SecondFactor.objects.all():
        purpose = _purpose(factor.pk)
        if encryption.is_current(factor.secret, purpose):
            continue
        try:
            secret = encryption.decrypted(factor.secret, purpose)
        except encryption.NotDecryptable:
            continue
        row = SecondFactor.objects.filter(pk=factor.pk, secret=factor.secret)
        num += row.update(secret=encryption.encrypted(secret, purpose))
    return num


def num_not_current() -> tuple[int, int]:
    """Return how many secrets an older secret key has encrypted, and how many an unknown one."""
    num_older = num_lost = 0
    for factor in SecondFactor.objects.all():
        purpose = _purpose(factor.pk)
        if encryption.is_current(factor.secret, purpose):
            continue
        try:
            encryption.decrypted(factor.secret, purpose)
            num_older += 1
        except encryption.NotDecryptable:
            num_lost += 1
    return num_older, num_lost


def _count(key: str, allowed: int, seconds: float, user: User) -> None:
    counted = recent_counts.count(key, seconds=seconds)
    if counted.number > allowed:
        note("code throttled", is_kept=False, user=user.get_username())
        raise TooManyCodes(counted.seconds_left)


def _use_app_code(user: User, code: str) -> bool:
    """Whether a code of the app is right and later than the last one that was accepted."""
    factor = SecondFactor.objects.filter(user=user).first()
    if factor is None:
        return False
    try:
        secret = encryption.decrypted(factor.secret, _purpose(user.pk))
    except encryption.NotDecryptable as problem:
        raise DomainError(
            "SECOND_FACTOR_LOST",
            f"The secret of this second factor is {problem}. Use a recovery code, or ask a "
            "superuser to remove the second factor.",
            status=409,
        ) from problem
    period = _period_of(secret, code)
    if period is None:
        return False
    row = SecondFactor.objects.filter(pk=factor.pk, secret=factor.secret, last_period__lt=period)
    return row.update(last_period=period) == 1


def _use_recovery_code(user: User, code: str) -> bool:
    digest = _digest(user.pk, code)
    with transaction.atomic():
        is_right = RecoveryCode.objects.filter(factor_id=user.pk, digest=digest).delete()[0] == 1
        if is_right:
            note("recovery code used", user=user.get_username())
    return is_right


def _period_of(secret: str, code: str) -> int | None:
    """Return the number of the 30 s for which a code is right; None: it is wrong."""
    if len(code) != APP_CODE_LENGTH or not (code.isascii() and code.isdigit()):
        return None
    try:
        return pyotp.TOTP(secret).verify_and_get_timecode(code, valid_window=TOLERANCE)
    except OTPVerificationError:
        return None


def _renew_codes(factor: SecondFactor) -> list[str]:
    codes = [_new_code() for _ in range(NUM_RECOVERY_CODES)]
    factor.recovery_codes.all().delete()
    RecoveryCode.objects.bulk_create(
        RecoveryCode(factor=factor, digest=_digest(factor.pk, _plain(each))) for each in codes
    )
    return codes


def _new_code() -> str:
    text = base64.b32encode(os.urandom(RECOVERY_BYTES)).decode().lower()
    return "-".join(text[start : start + GROUP] for start in range(0, len(text), GROUP))


def _plain(code: str) -> str:
    """Return a code without the spaces and hyphens that people read and write."""
    return "".join(code.split()).replace("-", "").lower()


def _digest(user_id: int, code: str) -> str:
    return blake2b(f"{user_id} {code}".encode("utf-8", "replace"), digest_size=32).hexdigest()


def _purpose(user_id: int) -> str:
    return f"second factor {user_id}"
