"""The keys (Ed25519) that sign checkpoints, and those whose signatures are accepted.

The private key is derived from the secret key of the installation, so that no further secret has to
be kept, and is in no database and no storage. The rows of accepted keys are endorsed with it: who
can only write to the database cannot add one. Former secret keys sign nothing; their public keys
stay accepted after they have been removed.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.db import transaction

from apps.checkpoints.models import SigningKey
from trainops.http.access_log import note
from trainops.paths import COMMAND
from trainops.signature_settings import VARIABLE

OWN_NAME = "this installation"
PUBLIC_KEY = re.compile("[0-9a-f]{64}")
SIGNED = re.compile("([0-9a-f]{64}):([0-9a-f]{128})")  # the public key, the signature
SHORT = 16  # characters of a key that people read

_enrolled: set[str] = set()  # own keys that this process has found in the database


class KeyRefused(ValueError):
    """What was given is not a key that can be accepted, or removed."""


class KeyNotEnrolled(OSError):
    """Signatures are required, and this process cannot judge or make any: it leaves all alone."""

    def __init__(self) -> None:
        super().__init__(
            f"{VARIABLE}=1, and the signing key of this process is not in the list of the "
            f"installation: {own_key()}. Give this machine the secret_key of the others, or run: "
            f"{COMMAND} signing-keys enroll"
        )


def own_key() -> str:
    """Return the public key of the installation, in hexadecimal."""
    return _public(_private(settings.SECRET_KEY))


def own_keys() -> list[str]:
    """Return the public keys of the present secret keys; the first one signs."""
    former = (each for each in settings.SECRET_KEY_FALLBACKS if "\n" not in each)
    return [own_key(), *(_public(_private(each)) for each in former)]


def sign(payload: bytes) -> str:
    """Return the public key and the signature of a payload with the private one."""
    private = _private(settings.SECRET_KEY)
    return f"{_public(private)}:{private.sign(payload).hex()}"


def signer(signed: str, payload: bytes) -> str | None:
    """Return the public key that signed the payload; None if the text is not its signature."""
    found = SIGNED.fullmatch(signed)
    if found is None:
        return None
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(found[1]))
        key.verify(bytes.fromhex(found[2]), payload)
    except (InvalidSignature, ValueError):
        return None
    return found[1]


def named(signed: str) -> str:
    """Return the key that a signature names as its own, right or not; empty where it names none."""
    found = SIGNED.fullmatch(signed)
    return found[1] if found else ""


def is_enrolled() -> bool:
    """Whether the database knows the own key: all processes of the installation accept it then.

    A process with another secret key than the installation (or before `prepare` has run) neither
    signs nor judges signatures. What was found once is remembered: during an outage of the
    database, staged checkpoints are still signed.
    """
    return own_key() in _enrolled or is_enrolled_now()


def is_enrolled_now() -> bool:
    """Answer as `is_enrolled` does, after a look into the database.

    What others signed is judged only then: once the key was replaced, a process that has only the
    former one may sign on, but it does not know the new key.
    """
    key = own_key()
    is_known = any(row.pk == key for row in _endorsed())
    if is_known:
        _enrolled.add(key)
    return is_known


def require_enrolled() -> None:
    """Raise KeyNotEnrolled where signatures are required, and this process can judge none."""
    if settings.REQUIRE_SIGNATURES and not is_enrolled_now():
        raise KeyNotEnrolled


def problem() -> str:
    """Return why this process may claim nothing; empty where it may."""
    try:
        require_enrolled()
    except KeyNotEnrolled as error:
        return str(error)
    return ""


def was_enrolled() -> bool:
    """Answer as `is_enrolled` did before, without asking the database."""
    return own_key() in _enrolled


def forget() -> None:
    """Ask the database again whether it knows the own key."""
    _enrolled.clear()


def accepted() -> dict[str, str]:
    """Return the names of all keys whose signatures are accepted, by key."""
    return {**dict.fromkeys(own_keys(), OWN_NAME), **{row.pk: row.name for row in _endorsed()}}


def enroll(*, is_asked: bool = False) -> list[str]:
    """Record the own keys, and endorse all accepted ones with the newest; return what is wrong.

    Run by the preparation of a start: the secret key may be new, or have been replaced. Where there
    are keys and none of the present secret keys has endorsed one, this may be the wrong secret key:
    it is recorded only if an administrator asks for it.
    """
    with transaction.atomic():
        if not is_asked and SigningKey.objects.exists() and not any(True for _ in _endorsed()):
            return [
                "the secret key is not the one with which checkpoints were signed, or that was "
                f"lost: this installation signs none until its secret key is back, or until "
                f"`{COMMAND} signing-keys enroll` records the new key {own_key()}"
            ]
        names = accepted()
        for key, name in names.items():
            row, is_new = SigningKey.objects.get_or_create(pk=key, defaults={"name": name})
            if is_new and is_asked:
                note("signing key recorded", key=key, name=name)
            endorsement = sign(_endorsed_bytes(row.pk, row.name))
            SigningKey.objects.filter(pk=key).update(endorsement=endorsement)
    return [
        f"{each.name} ({each.pk}) is no longer accepted as a signer of checkpoints: the secret key "
        f"that endorsed it is gone ({COMMAND} signing-keys trust)"
        for each in not_accepted()
    ]


def not_accepted() -> list[SigningKey]:
    """Return the rows that none of the present secret keys has endorsed."""
    return list(SigningKey.objects.exclude(pk__in=accepted()).order_by("added_at"))


def trust(key: str, name: str) -> None:
    """Accept the signatures of another installation, or of a former secret key.

    Raises KeyRefused.
    """
    if not PUBLIC_KEY.fullmatch(key):
        raise KeyRefused(f"got {key[:80]!r}; allowed: a public key of 64 hexadecimal digits")
    named = " ".join(name.split())
    if not named or len(named) > SigningKey.MAX_NAME or not named.isprintable():
        raise KeyRefused(
            f"the name is {name[:80]!r}; allowed: 1 to {SigningKey.MAX_NAME} printable characters"
        )
    if named == OWN_NAME:
        raise KeyRefused(f"the name is {named!r}, which only keys of this installation have")
    if key in own_keys():
        raise KeyRefused(f"{key[:SHORT]} is a key of this installation: it is accepted already")
    endorsement = sign(_endorsed_bytes(key, named))
    with transaction.atomic():
        SigningKey.objects.update_or_create(
            pk=key, defaults={"name": named, "endorsement": endorsement}
        )
        note("signing key accepted", key=key, name=named)


def distrust(beginning: str) -> SigningKey:
    """Accept the signatures of a key no longer; it is named by its beginning.

    Raises KeyRefused: no key or several begin so, or the key is one of the present secret keys.
    """
    found = list(SigningKey.objects.filter(pk__startswith=beginning)) if beginning else []
    if len(found) != 1:
        known = ", ".join(each.pk[:SHORT] for each in SigningKey.objects.order_by("added_at"))
        raise KeyRefused(
            f"{len(found)} keys begin with {beginning[:80]!r}; known: {known or 'none'}"
        )
    (row,) = found
    if row.pk in own_keys():
        raise KeyRefused(
            f"{row.pk[:SHORT]} belongs to a secret key that this installation still has: remove "
            "that line of the file secret_key first, and restart"
        )
    with transaction.atomic():
        SigningKey.objects.filter(pk=row.pk).delete()
        note("signing key removed", key=row.pk, name=row.name)
    return row


def _endorsed() -> Iterator[SigningKey]:
    """Yield the rows that one of the present secret keys has endorsed."""
    own = own_keys()
    for row in SigningKey.objects.all():
        if signer(row.endorsement, _endorsed_bytes(row.pk, row.name)) in own:
            yield row


def _endorsed_bytes(key: str, name: str) -> bytes:
    return f"trainops signing key 1\n{key}\n{name}".encode()


@lru_cache(maxsize=8)
def _private(secret: str) -> Ed25519PrivateKey:
    derive = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"trainops checkpoint signatures")
    return Ed25519PrivateKey.from_private_bytes(derive.derive(secret.encode()))


def _public(private: Ed25519PrivateKey) -> str:
    return private.public_key().public_bytes_raw().hex()
