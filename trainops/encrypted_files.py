"""Encryption of files of backups, and of checkpoints in a bucket: AES-256-GCM in chunks.

A file is MAGIC, a salt, and chunks of 1 MiB with a tag of 16 bytes each. Its own key is derived
from the secret, the salt and its name (HKDF-SHA256), so that no file passes for another. The nonce
of a chunk is its number and whether it is the last one, so that chunks can neither be exchanged nor
cut off (the STREAM construction of Hoang, Reyhanitabar, Rogaway and Vizár, 2015).
"""

import io
import os
from collections.abc import Iterator
from pathlib import Path
from shutil import copyfileobj
from typing import BinaryIO

from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

MAGIC = b"trainops-encrypted-1\n"
CHUNK_BYTES, SALT_BYTES, TAG_BYTES = 2**20, 32, 16
HEADER_BYTES = len(MAGIC) + SALT_BYTES


class Altered(Exception):
    """The content of a file is not what was written: another digest, or not by this key."""


class FileKey:
    """A secret of 32 bytes, and what is derived from it for one `purpose`."""

    def __init__(self, secret: bytes, purpose: str) -> None:
        self._secret, self._purpose = secret, purpose
        self.id = self.derived("id")[:8].hex()  # may be public

    def encrypted(self, source: BinaryIO, name: str) -> Iterator[bytes]:
        """Yield what is stored under a name for the rest of an open file."""
        salt = os.urandom(SALT_BYTES)
        cipher = self._cipher(name, salt)
        yield MAGIC + salt
        chunk, number, is_last = source.read(CHUNK_BYTES), 0, False
        while not is_last:
            following = source.read(CHUNK_BYTES)
            is_last = not following
            yield cipher.encrypt(_nonce(number, is_last=is_last), chunk, None)
            chunk, number = following, number + 1

    def decrypted(self, source: BinaryIO, name: str) -> BinaryIO:
        """Return the content of what is stored under a name. Reading raises Altered."""
        cipher = self._cipher(name, _salt(source.read(HEADER_BYTES)))
        return io.BufferedReader(_Decrypting(source, cipher), CHUNK_BYTES)

    def opened(self, path: Path, name: str) -> BinaryIO:
        """Return what is stored under a name for a file, to be read from any position.

        It is the same each time: the salt is a keyed digest of the content, which is read for it.
        """
        hasher = blake3(key=self.derived(f"salt {name}"))
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                hasher.update(chunk)
        salt = hasher.digest()
        return io.BufferedReader(_Encrypting(path, self._cipher(name, salt), salt), CHUNK_BYTES)

    def decrypt_in_place(self, path: Path, name: str) -> None:
        """Replace what is stored under a name, and is in a file, by its content.

        Raises Altered; the file ends then before the first chunk that was altered.
        """
        with path.open("rb") as stored, path.open("r+b") as content:  # which is never ahead
            try:
                copyfileobj(self.decrypted(stored, name), content, CHUNK_BYTES)
            finally:
                content.truncate()

    def derived(self, what: str, salt: bytes = b"") -> bytes:
        """Return a key of 32 bytes for one use."""
        info = f"trainops {self._purpose} {what}".encode()
        derive = HKDF(algorithm=SHA256(), length=32, salt=salt or None, info=info)
        return derive.derive(self._secret)

    def _cipher(self, name: str, salt: bytes) -> AESGCM:
        return AESGCM(self.derived(f"file {name}", salt))


class _Encrypting(io.RawIOBase):
    """What is stored for a file, of which one chunk at a time is in memory."""

    def __init__(self, path: Path, cipher: AESGCM, salt: bytes) -> None:
        self._source, self._cipher, self._header = path.open("rb"), cipher, MAGIC + salt
        self._content_bytes = path.stat().st_size
        self._position = 0
        self._number, self._chunk = -1, b""  # that was encrypted last

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        end = stored_bytes(self._content_bytes)
        self._position = offset + (0, self._position, end)[whence]
        return self._position

    def readinto(self, buffer: "memoryview[int]") -> int:  # type: ignore[override]
        part = self._header[self._position :]
        if not part:
            number, at = divmod(self._position - HEADER_BYTES, CHUNK_BYTES + TAG_BYTES)
            part = self._encrypted(number)[at:]
        size = min(len(buffer), len(part))
        buffer[:size] = part[:size]
        self._position += size
        return size

    def _encrypted(self, number: int) -> bytes:
        last = max(0, -(-self._content_bytes // CHUNK_BYTES) - 1)
        if number > last:
            return b""
        if number != self._number:
            self._source.seek(number * CHUNK_BYTES)
            chunk = self._source.read(CHUNK_BYTES)
            nonce = _nonce(number, is_last=number == last)
            self._number, self._chunk = number, self._cipher.encrypt(nonce, chunk, None)
        return self._chunk

    def close(self) -> None:
        self._source.close()
        super().close()


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


def _salt(header: bytes) -> bytes:
    if len(header) != HEADER_BYTES or not header.startswith(MAGIC):
        raise Altered
    return header[len(MAGIC) :]


def _nonce(number: int, *, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([is_last])


def stored_bytes(num_bytes: int) -> int:
    """Return the size of an encrypted file from that of its content."""
    return HEADER_BYTES + num_bytes + max(1, -(-num_bytes // CHUNK_BYTES)) * TAG_BYTES


def content_bytes(stored_bytes: int) -> int:
    """Return the size of the content of an encrypted file; -1 if no content has that size."""
    body = stored_bytes - HEADER_BYTES
    num_chunks = -(-body // (CHUNK_BYTES + TAG_BYTES))
    return body - num_chunks * TAG_BYTES if body >= TAG_BYTES else -1
