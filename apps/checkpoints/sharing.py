"""What checkpoints of one operation share: each file is there once, until the last user goes."""

from collections.abc import Iterable

from django.db.models import QuerySet

from apps.checkpoints import storage
from apps.checkpoints.models import Checkpoint
from trainops.runtime.checkpoint.manifest import Artifact, ArtifactEntry, StagedCheckpoint
from trainops.runtime.errors import CheckpointCorrupted


def artifacts(manifest: Iterable[ArtifactEntry]) -> list[Artifact]:
    """Return the files that a row names."""
    return [Artifact(**each) for each in manifest]


def files(checkpoints: QuerySet[Checkpoint]) -> dict[str, int]:
    """Return the bytes of every file by its location (storage.location)."""
    return {
        storage.location(path, each): each.size_bytes
        for path, manifest in checkpoints.values_list("artifacts_path", "manifest")
        for each in artifacts(manifest)
    }


def files_of_no_other(checkpoints: QuerySet[Checkpoint]) -> dict[str, int]:
    """Return the bytes by location of the files that would go with these checkpoints."""
    going = list(checkpoints.values_list("pk", "operation_id"))
    others = Checkpoint.objects.filter(operation_id__in={row[1] for row in going})
    kept = files(others.exclude(pk__in=[row[0] for row in going]))
    return {name: size for name, size in files(checkpoints).items() if name not in kept}


def files_of_staged(operation_id: str, staged: StagedCheckpoint) -> dict[str, int]:
    """Return the bytes by location of the files of a checkpoint that has no row yet."""
    path = f"{operation_id}/{staged.directory}"
    return {storage.location(path, each): each.size_bytes for each in staged.artifacts}


def freed_bytes(checkpoints: QuerySet[Checkpoint]) -> int:
    """Return how much deleting these checkpoints would free."""
    return sum(files_of_no_other(checkpoints).values())


def recount(operation_id: str) -> None:
    """Count every file with the oldest checkpoint that has it."""
    counted: set[str] = set()
    rows = Checkpoint.objects.filter(operation_id=operation_id).order_by("created_at", "pk")
    for row in rows.only("artifacts_path", "manifest", "counted_size_bytes"):
        own = {storage.location(row.artifacts_path, each): each for each in artifacts(row.manifest)}
        size_bytes = sum(each.size_bytes for name, each in own.items() if name not in counted)
        counted |= own.keys()
        if size_bytes != row.counted_size_bytes:
            Checkpoint.objects.filter(pk=row.pk).update(counted_size_bytes=size_bytes)


def require_homes(operation_id: str, directory: str, written: Iterable[Artifact]) -> None:
    """Raise CheckpointCorrupted unless all that it refers to in a bucket is of some committed one.

    What an attempt shares with its own checkpoints it uploaded itself, whether or not they were
    committed.
    """
    path = f"{operation_id}/{directory}"
    borrowed = {
        storage.location(path, each)
        for each in written
        if not storage.is_of_one_attempt(path, each.home)
    }
    gone = borrowed - files(Checkpoint.objects.filter(operation_id=operation_id)).keys()
    if gone:
        reason = "a checkpoint that it refers to was deleted in the meantime"
        raise CheckpointCorrupted(storage.directory(path), missing=sorted(gone), reason=reason)
