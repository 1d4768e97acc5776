"""Encryption of the files of backups: AES-256-GCM in chunks, with a key from a file.

A file is MAGIC, a random salt, and chunks of 1 MiB with a tag of 16 bytes each. Its own key is
derived from the secret, the salt and its name (HKDF-SHA256), so that no file passes for another.
The nonce of a chunk is its number and whether it is the last one, so that chunks can neither be
exchanged nor cut off (the STREAM construction of Hoang, Reyhanitabar, Rogaway and Vizár, 2015).
"""

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from apps.backups.errors import Altered, KeyProblem

MAGIC = b"trainops-encrypted-1\n"
CHUNK_BYTES, SALT_BYTES, TAG_BYTES, SECRET_BYTES = 2**20, 32, 16, 32
HEADER_BYTES = len(MAGIC) + SALT_BYTES
HOW_TO = "umask 077; openssl rand -hex 32 > FILE"


class BackupKey:
    """The secret of a key file, and what is derived from it."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._names = self._derived("names", b"")
        self.id = self._derived("id", b"")[:8].hex()  # may be public

    def name_of(self, digest: str) -> str:
        """Return the name of a file, which does not reveal the digest of its content."""
        return blake3(bytes.fromhex(digest), key=self._names).hexdigest()

    def encrypted(self, source: BinaryIO, name: str) -> Iterator[bytes]:
        """Yield what is stored under a name for the rest of an open file."""
        salt = os.urandom(SALT_BYTES)
        cipher = AESGCM(self._derived(f"file {name}", salt))
        yield MAGIC + salt
        chunk, number, is_last = source.read(CHUNK_BYTES), 0, False
        while not is_last:
            following = source.read(CHUNK_BYTES)
            is_last = not following
            yield cipher.encrypt(_nonce(number, is_last=is_last), chunk, None)
            chunk, number = following, number + 1

    def decrypted(self, source: BinaryIO, name: str) -> BinaryIO:
        """Return the content of what is stored under a name. Reading raises Altered."""
        header = source.read(HEADER_BYTES)
        if len(header) != HEADER_BYTES or not header.startswith(MAGIC):
            raise Altered
        cipher = AESGCM(self._derived(f"file {name}", header[len(MAGIC) :]))
        return io.BufferedReader(_Decrypting(source, cipher), CHUNK_BYTES)

    def _derived(self, purpose: str, salt: bytes) -> bytes:
        info = f"trainops backup {purpose}".encode()
        return HKDF(algorithm=SHA256(), length=32, salt=salt or None, info=info).derive(
            self._secret
        )


class _Decrypting(io.RawIOBase):
    """The content of an encrypted file, of which one chunk at a time is in memory."""

    def __init__(self, source: BinaryIO, cipher: AESGCM) -> None:
        self._source, self._cipher = source, cipher
        self._number = 0
        self._next = source.read(CHUNK_BYTES + TAG_BYTES)
        self._chunk = memoryview(b"")
        self._is_over = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview[int]") -> int:  # type: ignore[override]
        if not self._chunk and not self._is_over:
            self._decrypt()
        size = min(len(buffer), len(self._chunk))
        buffer[:size] = self._chunk[:size]
        self._chunk = self._chunk[size:]
        return size

    def _decrypt(self) -> None:
        chunk, self._next = self._next, self._source.read(CHUNK_BYTES + TAG_BYTES)
        self._is_over = not self._next
        try:
            content = self._cipher.decrypt(_nonce(self._number, is_last=self._is_over), chunk, None)
        except (InvalidTag, ValueError):  # of less bytes than a tag has
            raise Altered from None
        self._chunk = memoryview(content)
        self._number += 1


def _nonce(number: int, *, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([is_last])


def content_bytes(stored_bytes: int) -> int:
    """Return the size of the content of an encrypted file; -1 if no content has that size."""
    body = stored_bytes - HEADER_BYTES
    num_chunks = -(-body // (CHUNK_BYTES + TAG_BYTES))
    return body - num_chunks * TAG_BYTES if body >= TAG_BYTES else -1


def read_key(path: Path) -> BackupKey:
    """Return the key of a file. Raises KeyProblem."""
    try:
        secret = bytes.fromhex(path.read_text().strip())
    except OSError as error:
        raise KeyProblem(f"The key {path} cannot be read: {error.strerror}.") from error
    except ValueError:
        secret = b""
    if len(secret) != SECRET_BYTES:
        raise KeyProblem(
            f"{path} is not a key: it must have {SECRET_BYTES * 2} hexadecimal digits. "
            f"Make one with: {HOW_TO}"
        )
    return BackupKey(secret)
