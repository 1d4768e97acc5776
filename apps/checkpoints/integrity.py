"""Compare the bytes of checkpoints with their manifests, and record the result in their rows."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from blake3 import blake3

from apps.checkpoints import place, remote, sharing, signatures, storage
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.owners import owners
from apps.checkpoints.services import elect_best
from apps.checkpoints.signatures import SignatureRefused
from apps.checkpoints.trying import TooLarge
from trainops.runtime.checkpoint.manifest import MANIFEST, MAX_MANIFEST_BYTES, verify
from trainops.runtime.errors import CheckpointCorrupted


def check(checkpoint: Checkpoint, *, accepts_unsigned: bool = False) -> CheckpointCorrupted | None:
    """Compare the bytes with the manifest, and write down what is found; return what is wrong.

    Its signature is checked first. In a bucket, it is the bucket's bytes that are read, whatever
    copies there are. Raises OSError where the storage is away or does not answer: that says nothing
    about the bytes.
    """
    path, digest = checkpoint.artifacts_path, checkpoint.manifest_digest
    if (bucket := remote.bucket()) is not None:
        look: Callable[[], object] = partial(bucket.verify, path, digest)
    else:
        look = partial(verify, storage.directory(path), digest)
    return _judged(checkpoint, look, accepts_unsigned=accepts_unsigned)


def glance(checkpoint: Checkpoint) -> CheckpointCorrupted | None:
    """Check as `check` does, but in a bucket only names and sizes, because a request waits."""
    if (bucket := remote.bucket()) is None:
        return check(checkpoint)
    files = sharing.artifacts(checkpoint.manifest)
    return _judged(checkpoint, partial(bucket.look, checkpoint.artifacts_path, files))


def _judged(
    checkpoint: Checkpoint, look: Callable[[], object], *, accepts_unsigned: bool = False
) -> CheckpointCorrupted | None:
    place.require()
    try:
        signatures.require(checkpoint, accepts_unsigned=accepts_unsigned)
        look()
    except CheckpointCorrupted as problem:
        mark(checkpoint.artifacts_path, problem)
        return problem
    heal(checkpoint.artifacts_path)
    return None


def mark(artifacts_path: str, problem: CheckpointCorrupted) -> None:
    """Write down that bytes are altered or missing: corrupted, or unavailable for now.

    A signature that is not accepted says nothing about them, and is judged anew whenever they are
    used: it may be accepted by then. Raises OSError, and marks nothing, where the storage itself is
    away.
    """
    place.require()
    if isinstance(problem, SignatureRefused):
        return
    _complete(problem, artifacts_path)
    health = Checkpoint.Health
    Checkpoint.objects.filter(artifacts_path=artifacts_path).update(
        health=health.UNAVAILABLE if problem.is_incomplete else health.CORRUPTED,
        problem=str(problem),
        missing_artifacts=problem.missing,
        altered_artifacts=problem.altered,
    )
    _changed(artifacts_path.partition("/")[0])


def heal(artifacts_path: str) -> bool:
    """Write down that the bytes are what was saved; whether anything else was written there."""
    marked = Checkpoint.objects.filter(artifacts_path=artifacts_path)
    marked = marked.exclude(health=Checkpoint.Health.HEALTHY)
    is_healed = bool(
        marked.update(
            health=Checkpoint.Health.HEALTHY, problem="", missing_artifacts=[], altered_artifacts=[]
        )
    )
    if is_healed:
        _changed(artifacts_path.partition("/")[0])
    return is_healed


def _changed(operation_id: str) -> None:
    elect_best(operation_id)
    owners().check_damage(operation_id)


def manifest_of(checkpoint: Checkpoint) -> bytes:
    """Return the content of its manifest.json, as it was committed.

    Raises CheckpointCorrupted; OSError where the storage is away or does not answer.
    """
    place.require()
    return committed_manifest(checkpoint.artifacts_path, checkpoint.manifest_digest)


def committed_manifest(artifacts_path: str, digest: str) -> bytes:
    """Do what `manifest_of` does, for callers that have checked the identity of the storage."""
    directory = storage.directory(artifacts_path)
    if (bucket := remote.bucket()) is not None:
        name = storage.manifest_location(artifacts_path)
        try:
            content = bucket.read(name, max_bytes=MAX_MANIFEST_BYTES)
        except TooLarge as error:
            raise CheckpointCorrupted(directory, altered=[MANIFEST], reason=str(error)) from None
    else:
        content = _read(directory / MANIFEST)
    if content is None:
        raise CheckpointCorrupted(directory, missing=[MANIFEST])
    if blake3(content).hexdigest() != digest:
        raise CheckpointCorrupted(directory, altered=[MANIFEST])
    return content


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(MAX_MANIFEST_BYTES + 1)  # more has another digest
    except FileNotFoundError:
        return None


def is_gone(checkpoint: Checkpoint) -> bool:
    """Whether its manifest is not where it was committed. Raises OSError where nothing is known."""
    if (bucket := remote.bucket()) is not None:
        return not bucket.has(storage.manifest_location(checkpoint.artifacts_path))
    return not (storage.directory(checkpoint.artifacts_path) / MANIFEST).exists()


def _complete(problem: CheckpointCorrupted, artifacts_path: str) -> None:
    """Name every missing file: a reader that finds no manifest knows of no other."""
    row = Checkpoint.objects.filter(artifacts_path=artifacts_path).only("manifest").first()
    if row is None or MANIFEST not in problem.missing or remote.bucket() is not None:
        return
    directory = storage.directory(artifacts_path)
    names = (each.name for each in sharing.artifacts(row.manifest))
    problem.missing += [
        name for name in names if name not in problem.missing and not (directory / name).exists()
    ]
