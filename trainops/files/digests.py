"""The SHA-256 beside a file: its digest in hexadecimal, alone or as sha256sum writes it."""

import hashlib
import re
from pathlib import Path
from typing import BinaryIO

from trainops.files.errors import DigestMismatch
from trainops.files.foreign import opened
from trainops.runtime.checkpoint.durable import write_whole

SUFFIX = ".sha256"
MAX_BYTES = 8192
LINE = re.compile(r"\\?([0-9a-fA-F]{64})(?:[ \t][ *][^\n]*)?\s*")


def beside(path: Path) -> Path:
    """Return where the digest of this file is."""
    return path.with_name(path.name + SUFFIX)


def compare(path: Path, content: BinaryIO) -> str:
    """Return what to say of the digest of this open file. Raises OSError and FormatErrors.

    That there is none is no mistake: only one of the formats writes it.
    """
    if not beside(path).exists():
        return f"there is no {beside(path).name} to compare with"
    with opened(beside(path)) as file:
        text = file.read(MAX_BYTES).decode("ascii", "replace")
    written = LINE.fullmatch(text)
    if written is None:
        raise DigestMismatch(f"{beside(path).name} holds no SHA-256 in hexadecimal")
    if (found := _sha256(content)) != written[1].lower():
        raise DigestMismatch(
            f"{path.name} has the SHA-256 {found}, {beside(path).name} says {written[1].lower()}"
        )
    return f"sha256 {found}"


def write(path: Path) -> str:
    """Write the digest of this file beside it, and return it."""
    with opened(path) as file:
        digest = _sha256(file)
    write_whole(beside(path), f"{digest}\n".encode())
    return digest


def _sha256(file: BinaryIO) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
