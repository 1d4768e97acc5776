"""The files that an operation leaves: which they are, and their bytes, verified on the way out."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from django.http import StreamingHttpResponse

from apps.checkpoints import integrity, remote, storage
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.sharing import artifacts
from apps.operations.errors import CheckpointNotFound, NotAllowed, StorageUnavailable
from trainops.errors import DomainError
from trainops.runtime.checkpoint.manifest import MANIFEST, Artifact, open_verified
from trainops.runtime.errors import CheckpointCorrupted

CHUNK_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Download:
    """A file whose bytes were verified: what is sent is what was hashed."""

    artifact: Artifact
    chunks: Iterator[bytes]

    def response(self, filename: str = "") -> StreamingHttpResponse:
        """Return the answer that carries it, under its own name or another."""
        response = StreamingHttpResponse(self.chunks, content_type="application/octet-stream")
        response["Content-Length"] = str(self.artifact.size_bytes)
        name = filename or self.artifact.name
        response["Content-Disposition"] = f'attachment; filename="{name}"'
        response["X-Content-Type-Options"] = "nosniff"
        response["ETag"] = f'"{self.artifact.blake3}"'
        return response


class ArtifactNotFound(DomainError):
    def __init__(self, operation_id: str, name: str, allowed: list[str]) -> None:
        super().__init__(
            "ARTIFACT_NOT_FOUND",
            f"Operation {operation_id} has no file {name[:64]!r}.",
            {"operation_id": operation_id, "given": name[:64], "allowed": allowed},
            status=404,
        )


def newest(operation_id: str) -> Checkpoint | None:
    """Return the newest healthy checkpoint."""
    return Checkpoint.objects.filter(operation_id=operation_id).healthy().newest_first().first()


def source(operation_id: str, checkpoint_id: str = "") -> Checkpoint | None:
    """Return the checkpoint that is named, else the result (final), else the newest healthy one.

    Raises:
        CheckpointNotFound: the one that was asked for is not there, or not healthy.
    """
    mine = Checkpoint.objects.filter(operation_id=operation_id).healthy()
    if checkpoint_id:
        chosen = mine.named(operation_id, checkpoint_id).first()
        if chosen is None:
            raise CheckpointNotFound(operation_id, checkpoint_id)
        return chosen
    final = mine.filter(type=Checkpoint.Type.FINAL).newest_first().first()
    return final or mine.newest_first().first()


def listed(checkpoint: Checkpoint) -> list[Artifact]:
    return artifacts(checkpoint.manifest)


def download(checkpoint: Checkpoint, name: str) -> Download:
    """Open one file of a checkpoint. `name` is looked up in its manifest, never joined to a path.

    The first bytes are sent only after all were hashed.

    Raises:
        ArtifactNotFound: the checkpoint has no such file.
        NotAllowed: its bytes are not what was saved; the checkpoint is marked corrupted.
        StorageUnavailable: a bucket does not answer.
    """
    artifact = _named(checkpoint, name)
    chunks = _chunks(checkpoint, artifact)
    try:
        first = next(chunks, b"")
    except CheckpointCorrupted as problem:
        raise _corrupted(checkpoint, name, problem) from problem
    except OSError as error:
        raise StorageUnavailable(error) from error
    return Download(artifact, chain([first], chunks))


def manifest(checkpoint: Checkpoint) -> bytes:
    """Return its manifest.json. Raises NotAllowed where it is damaged, StorageUnavailable."""
    try:
        return integrity.manifest_of(checkpoint)
    except CheckpointCorrupted as problem:
        raise _corrupted(checkpoint, MANIFEST, problem) from problem
    except OSError as error:
        raise StorageUnavailable(error) from error


def link(checkpoint: Checkpoint, name: str) -> str | None:
    """Return a URL that serves one file from the bucket for an hour.

    None without a bucket, for an encrypted file, and where the credentials cannot sign a link: then
    `download` has it.

    Raises:
        ArtifactNotFound: the checkpoint has no such file.
        NotAllowed: it is missing or cut short; the checkpoint is marked corrupted.
        StorageUnavailable: nothing is known then.
    """
    bucket = remote.bucket()
    if bucket is None:
        return None
    artifact = _named(checkpoint, name)
    file_name = f"{checkpoint.operation_id}-step{checkpoint.step}-{name}"
    try:
        return bucket.link(checkpoint.artifacts_path, artifact, file_name)
    except CheckpointCorrupted as problem:
        raise _corrupted(checkpoint, name, problem) from problem
    except OSError as error:
        raise StorageUnavailable(error) from error


def _named(checkpoint: Checkpoint, name: str) -> Artifact:
    files = {each.name: each for each in listed(checkpoint)}
    if name not in files:
        raise ArtifactNotFound(checkpoint.operation_id, name, sorted(files))
    return files[name]


def _corrupted(checkpoint: Checkpoint, name: str, problem: CheckpointCorrupted) -> NotAllowed:
    """Mark the checkpoint, and return what is answered. Raises StorageUnavailable."""
    try:
        integrity.mark(checkpoint.artifacts_path, problem)
    except OSError as error:
        raise StorageUnavailable(error) from error
    return NotAllowed(
        "CHECKPOINT_CORRUPTED",
        f"The content of {name} differs from what was saved.",
        missing_artifacts=problem.missing,
        altered_artifacts=problem.altered,
    )


def _chunks(checkpoint: Checkpoint, artifact: Artifact) -> Iterator[bytes]:
    path, bucket = checkpoint.artifacts_path, remote.bucket()
    if bucket is None:
        opened = open_verified(storage.directory(path), artifact)
    else:
        opened = bucket.opened(path, artifact)
    with opened as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
