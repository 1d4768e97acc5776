"""One checkpoint on its way from a bucket to a directory that counts for nothing yet."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from secrets import token_hex

from apps.checkpoints import storage
from apps.checkpoints.encrypted_objects import EncryptedObjects
from apps.checkpoints.trying import Missing, RetryPolicy, TooLarge, retried
from trainops.runtime.checkpoint.durable import require_space
from trainops.runtime.checkpoint.manifest import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    Artifact,
    Checkpoint,
    open_verified,
    read_manifest,
)
from trainops.runtime.errors import CheckpointCorrupted


class Fetch:
    """Files of one checkpoint, fetched into a draft and verified there."""

    def __init__(
        self,
        store: EncryptedObjects,
        artifacts_path: str,
        draft: Path,
        policy: RetryPolicy,
        stop: threading.Event,
    ) -> None:
        self.objects, self.artifacts_path, self.draft = store, artifacts_path, draft
        self.policy, self.stop = policy, stop

    def manifest(self, digest: str | None) -> Checkpoint:
        """Fetch what the files must be. Raises CheckpointCorrupted."""
        self._get(storage.manifest_location(self.artifacts_path), MANIFEST, MAX_MANIFEST_BYTES)
        with self._named():
            checkpoint = read_manifest(self.draft, digest)
        require_space(self.draft, checkpoint.size_bytes)
        return checkpoint

    def file(self, artifact: Artifact) -> None:
        """Fetch one file and compare it with its digest. Raises CheckpointCorrupted."""
        remote = storage.location(self.artifacts_path, artifact)
        self._get(remote, artifact.name, artifact.size_bytes)
        with self._named(), open_verified(self.draft, artifact):
            pass

    def _get(self, remote: str, name: str, max_bytes: int) -> None:
        directory, path = storage.directory(self.artifacts_path), self.draft / name
        call = partial(self.objects.get, remote, path, self.stop, max_bytes=max_bytes)
        try:
            retried(call, self.policy, self.stop)
        except Missing:
            raise CheckpointCorrupted(directory, missing=[name]) from None
        except TooLarge as error:
            raise CheckpointCorrupted(directory, altered=[name], reason=str(error)) from None

    @contextmanager
    def _named(self) -> Iterator[None]:
        """What is wrong is the checkpoint, not the draft of its copy."""
        try:
            yield
        except CheckpointCorrupted as error:
            raise CheckpointCorrupted(
                storage.directory(self.artifacts_path),
                missing=error.missing,
                altered=error.altered,
                reason=error.reason,
            ) from error


@contextmanager
def new_draft(directory: Path) -> Iterator[Path]:
    """A new directory beside it, gone afterwards; its name is none of a checkpoint's."""
    draft = directory.with_name(f".{directory.name}-{token_hex(4)}{storage.DRAFT}")
    draft.mkdir(parents=True)
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        storage.remove_if_empty(directory.parent)
