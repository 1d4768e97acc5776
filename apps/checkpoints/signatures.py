"""Signatures of checkpoints: which installation committed a manifest, and in which place.

The digest in a checkpoint's row protects its files from others who can write to the storage. A
signature protects what has no row (a database that was restored from a backup, a commit that an
outage prevented) and rows of a database that others can write to. It covers the digest of the
manifest, which covers all files, and the path of the checkpoint: a genuine checkpoint cannot be put
in the place of another one. It is in the row and, for a storage without the row, in a file beside
the manifest.
"""

import json
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from django.conf import settings

from apps.checkpoints import remote, signing_keys, storage
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.trying import TooLarge
from trainops.runtime.checkpoint.durable import write_whole
from trainops.runtime.checkpoint.manifest import verify
from trainops.runtime.errors import CheckpointCorrupted

FORMAT, VERSION = "trainops-signature", 1
UNREADABLE = "unreadable"  # in place of a signature: its file has none


class Standing(StrEnum):
    """What a signature is worth."""

    OWN = "own"
    TRUSTED = "trusted"
    UNSIGNED = "unsigned"
    UNKNOWN = "unknown"
    INVALID = "invalid"


NOT_ACCEPTED = frozenset({Standing.UNSIGNED, Standing.UNKNOWN})


class SignatureRefused(CheckpointCorrupted):
    """The signature of a checkpoint refuses it; nothing is known of its bytes."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The result of a check of a signature."""

    standing: Standing
    key: str = ""  # that made it; empty: it is no signature of this checkpoint by any key
    name: str = ""  # of an accepted key
    text: str = ""  # as the row has it; empty where it has not the form of a signature

    @property
    def is_accepted(self) -> bool:
        return self.standing in (Standing.OWN, Standing.TRUSTED)

    def __str__(self) -> str:
        match self.standing:
            case Standing.OWN:
                return "signed by this installation"
            case Standing.TRUSTED:
                return f"signed by {self.name} ({self.key[: signing_keys.SHORT]})"
            case Standing.UNSIGNED:
                return "not signed"
            case Standing.UNKNOWN:
                return "signed with a key that is not accepted"
            case Standing.INVALID:
                return "the signature does not match its manifest and its place"


def sign(artifacts_path: str, digest: str) -> str:
    """Return the signature for the row of a checkpoint; empty where this process cannot sign."""
    if not signing_keys.is_enrolled():
        return ""
    return signing_keys.sign(_payload(artifacts_path, digest))


def write(artifacts_path: str, digest: str) -> None:
    """Write the signature of a staged checkpoint beside its manifest. Raises OSError."""
    if content := _content(artifacts_path, digest):
        path = storage.directory(artifacts_path) / storage.SIGNATURE
        path.with_name(f"{path.name}.draft").unlink(missing_ok=True)  # of a process that was killed
        write_whole(path, content)


def store(artifacts_path: str, digest: str) -> None:
    """Write the signature of a committed checkpoint into the storage. Raises OSError."""
    directory, bucket = storage.directory(artifacts_path), remote.bucket()
    if bucket is None or directory.exists():
        write(artifacts_path, digest)
    if bucket is not None:
        bucket.write(storage.signature_location(artifacts_path), _content(artifacts_path, digest))


def read(artifacts_path: str) -> str:
    """Return the signature in the storage as a row has it; empty where there is none.

    It is as good on this disk as in a bucket. Raises OSError where a bucket does not answer.
    """
    content = _read_file(storage.directory(artifacts_path))
    if content is None and (bucket := remote.bucket()) is not None:
        name, max_bytes = storage.signature_location(artifacts_path), storage.MAX_SIGNATURE_BYTES
        try:
            content = bucket.read(name, max_bytes=max_bytes)
        except TooLarge:
            return UNREADABLE
    return "" if content is None else _text(content)


def of_copy(directory: Path) -> Signature:
    """Return whose signature a copied checkpoint has, after reading every byte of it.

    The directory has its name, and is in one that has the id of its operation, as in an archive.
    Raises CheckpointCorrupted, OSError.
    """
    place = directory.resolve()
    digest = verify(place).digest
    signature = place / storage.SIGNATURE
    content = b"" if signature.exists() and not signature.is_file() else _read_file(place)
    signed = "" if content is None else _text(content)
    return SignatureChecks().check(f"{place.parent.name}/{place.name}", digest, signed)


def content_of(signed: str) -> bytes:
    """Return the content of the file for the signature of a row; empty where there is none."""
    key, _, signature = signed.partition(":")
    content = {
        "format": FORMAT, "version": VERSION, "algorithm": "ed25519",
        "public_key": key, "signature": signature,
    }  # fmt: skip
    return json.dumps(content).encode() if signature else b""


def _text(content: bytes) -> str:
    """Return the signature in a file as a row has it."""
    try:
        found = json.loads(content)
        if (found["format"], found["version"]) == (FORMAT, VERSION):
            return f"{found['public_key']}:{found['signature']}"
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    return UNREADABLE


class SignatureChecks:
    """Checks of several signatures, which read the accepted keys once, if at all."""

    @cached_property
    def names(self) -> dict[str, str]:
        return signing_keys.accepted()

    def check(self, artifacts_path: str, digest: str, signed: str) -> Signature:
        """Return what the signature of a checkpoint is worth here."""
        if not signed:
            return Signature(Standing.UNSIGNED)
        named = signing_keys.named(signed)
        if not named:  # any text that a file can hold; no row could have it
            return Signature(Standing.UNKNOWN)
        key = signing_keys.signer(signed, _payload(artifacts_path, digest))
        if key is None:
            is_proven = named in self.names
            return Signature(Standing.INVALID if is_proven else Standing.UNKNOWN, text=signed)
        if key in signing_keys.own_keys():
            return Signature(Standing.OWN, key, signing_keys.OWN_NAME, signed)
        name = self.names.get(key)
        if name is None:
            return Signature(Standing.UNKNOWN, key, text=signed)
        standing = Standing.OWN if name == signing_keys.OWN_NAME else Standing.TRUSTED
        return Signature(standing, key, name, signed)

    def of(self, checkpoint: Checkpoint) -> Signature:
        path, digest = checkpoint.artifacts_path, checkpoint.manifest_digest
        return self.check(path, digest, checkpoint.signature)


def of(checkpoint: Checkpoint) -> Signature:
    return SignatureChecks().of(checkpoint)


def require(checkpoint: Checkpoint, *, accepts_unsigned: bool = False) -> None:
    """Raise SignatureRefused where a checkpoint's signature refuses it, and KeyNotEnrolled.

    `accepts_unsigned`: whatever the setting says.
    """
    if accepts_unsigned and not checkpoint.signature:
        return
    if problem := problem_of(checkpoint):
        raise problem


def problem_of(
    checkpoint: Checkpoint, checks: SignatureChecks | None = None
) -> SignatureRefused | None:
    """Return why the signature of a row refuses the checkpoint; None where it does not.

    The row's digest vouches for the files. Refused is what is proven wrong, a signature of an
    accepted key for something else, and with the setting all that no accepted key has signed.

    Raises KeyNotEnrolled where the setting asks for a judgement that this process cannot make.
    """
    found = (checks or SignatureChecks()).of(checkpoint)
    is_judged = settings.REQUIRE_SIGNATURES
    if is_judged and found.standing in NOT_ACCEPTED:
        signing_keys.require_enrolled()
    return _problem(checkpoint.artifacts_path, found, is_signed_only=is_judged)


def require_stored(artifacts_path: str, digest: str, *, is_asked: bool) -> Signature:
    """Check the signature, in the storage, of a checkpoint that no row knows; return it.

    Nothing else vouches for such files: what no accepted key has signed is accepted only where a
    user asked for it, and the setting does not refuse it.

    Raises SignatureRefused, OSError.
    """
    signing_keys.require_enrolled()
    found = SignatureChecks().check(artifacts_path, digest, read(artifacts_path))
    is_signed_only = settings.REQUIRE_SIGNATURES or (
        not is_asked and signing_keys.is_enrolled_now()
    )
    if problem := _problem(artifacts_path, found, is_signed_only=is_signed_only):
        raise problem
    return found


def _problem(
    artifacts_path: str, found: Signature, *, is_signed_only: bool
) -> SignatureRefused | None:
    directory, name = storage.directory(artifacts_path), storage.SIGNATURE
    if found.standing is Standing.INVALID:
        return SignatureRefused(directory, altered=[name], reason=str(found))
    if is_signed_only and found.standing in NOT_ACCEPTED:
        how = f"; to accept it: signing-keys trust {found.key}" if found.key else ""
        return SignatureRefused(directory, missing=[name], reason=f"{found}{how}")
    return None


def _content(artifacts_path: str, digest: str) -> bytes:
    """Return the content of the file; empty where this process cannot sign."""
    return content_of(sign(artifacts_path, digest))


def _payload(artifacts_path: str, digest: str) -> bytes:
    return f"trainops checkpoint 1\n{artifacts_path}\n{digest}".encode()


def _read_file(directory: Path) -> bytes | None:
    try:
        with (directory / storage.SIGNATURE).open("rb") as file:
            return file.read(storage.MAX_SIGNATURE_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
