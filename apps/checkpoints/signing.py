"""Sign the checkpoints that are not signed by the newest key, after reading every byte of them."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from apps.checkpoints import integrity, remote, signatures, signing_keys, storage
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.signatures import SignatureChecks, Standing


@dataclass(frozen=True, slots=True)
class Signed:
    checkpoint: Checkpoint
    problem: str  # why it was not signed; empty: it was


def sign_all() -> Iterator[Signed]:
    """Sign what is unsigned, or signed by another accepted key. Raises OSError.

    What is not accepted, and what differs from its digests, is not signed. What is deleted
    meanwhile is passed over.
    """
    newest, checks = signing_keys.own_key(), SignatureChecks()
    for checkpoint in Checkpoint.objects.order_by("created_at", "pk").iterator(chunk_size=200):
        found = checks.of(checkpoint)
        if found.key == newest:
            continue
        problem = _problem(checkpoint, found)
        if problem:
            if _is_there(checkpoint):
                yield Signed(checkpoint, problem)
        elif _sign(checkpoint):
            yield Signed(checkpoint, "")


def _problem(checkpoint: Checkpoint, found: signatures.Signature) -> str:
    if found.standing is Standing.UNKNOWN:
        return f"{found}; to accept it: signing-keys trust {found.key or 'KEY'}"
    return str(integrity.check(checkpoint, accepts_unsigned=True) or "")


def _sign(checkpoint: Checkpoint) -> bool:
    """Whether it is signed; otherwise it was deleted meanwhile, and nothing of this is left."""
    path, digest = checkpoint.artifacts_path, checkpoint.manifest_digest
    try:
        signatures.store(path, digest)
    except FileNotFoundError:
        if _is_there(checkpoint):
            raise
        return False
    rows = Checkpoint.objects.filter(pk=checkpoint.pk, manifest_digest=digest)
    if rows.update(signature=signatures.sign(path, digest)):
        return True
    with suppress(OSError):
        (storage.directory(path) / storage.SIGNATURE).unlink(missing_ok=True)
    if (bucket := remote.bucket()) is not None:
        bucket.remove_later([storage.signature_location(path)])
    return False


def _is_there(checkpoint: Checkpoint) -> bool:
    return Checkpoint.objects.filter(pk=checkpoint.pk).exists()
