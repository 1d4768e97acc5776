"""Encryption of secrets that the database keeps: AES-256-GCM, by the installation's secret key.

The key of the cipher is derived from the secret key (HKDF-SHA256). What a secret is for is
authenticated with it, so that a row cannot take the place of another one.
"""

import base64
import os
from collections.abc import Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

VERSION = "1."
NONCE_BYTES, TAG_BYTES = 12, 16


class NotDecryptable(ValueError):
    """No present key of the installation has encrypted this."""

    def __init__(self) -> None:
        super().__init__("encrypted with a secret key that this installation no longer has")


def encrypted(text: str, purpose: str) -> str:
    """Return a text, encrypted with the newest secret key."""
    nonce = os.urandom(NONCE_BYTES)
    sealed = _cipher(settings.SECRET_KEY).encrypt(nonce, text.encode(), purpose.encode())
    return VERSION + base64.b64encode(nonce + sealed).decode()


def decrypted(stored: str, purpose: str) -> str:
    """Return what `encrypted` was given. Raises NotDecryptable."""
    keys = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    for text in _decryptions(stored, purpose, keys):
        return text
    raise NotDecryptable


def is_current(stored: str, purpose: str) -> bool:
    """Whether the newest secret key has encrypted this."""
    return any(True for _ in _decryptions(stored, purpose, (settings.SECRET_KEY,)))


def _decryptions(stored: str, purpose: str, secrets: tuple[str, ...]) -> Iterator[str]:
    if not stored.startswith(VERSION):
        return
    try:
        whole = base64.b64decode(stored.removeprefix(VERSION), validate=True)
    except ValueError:
        return
    if len(whole) < NONCE_BYTES + TAG_BYTES:
        return
    for secret in secrets:
        try:
            content = _cipher(secret).decrypt(
                whole[:NONCE_BYTES], whole[NONCE_BYTES:], purpose.encode()
            )
        except InvalidTag:
            continue
        yield content.decode()


def _cipher(secret: str) -> AESGCM:
    derive = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"trainops secrets in rows")
    return AESGCM(derive.derive(secret.encode()))
