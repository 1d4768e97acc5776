"""Copies of a bucket's checkpoints on this machine's disk: made where needed, bounded, forgotten.

What is committed is in the bucket, so any copy of it may go; what is only staged may not.
"""

import os
import shutil
import threading
import time
from collections.abc import Collection, Iterable

from django.conf import settings

from apps.checkpoints import remote, storage
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.owners import owners
from trainops.runtime.checkpoint.manifest import verify
from trainops.runtime.errors import CheckpointCorrupted


def make_local(artifacts_path: str, digest: str, stop: threading.Event) -> None:
    """Have the checkpoint whole on this disk: by the copy that is here, else by a download.

    Raises CheckpointCorrupted where the bucket's is not whole, StorageFailed, NobodyWaits.
    """
    bucket = remote.bucket()
    directory = storage.directory(artifacts_path)
    if bucket is None or directory.exists():
        try:
            verify(directory, digest)
        except CheckpointCorrupted:
            if bucket is None:
                raise
            storage.remove(artifacts_path)  # a copy may go bad; the bucket has the bytes
        else:
            os.utime(directory)  # what was not used for longest is forgotten first
            return
    bucket.download(artifacts_path, digest, stop)


def forget_some(*, room_bytes: int = 0) -> int:
    """Remove the copies unused for longest until the rest, and `room_bytes`, fit; return how many.

    A copy that a running attempt may be reading stays, and so does what is not in the bucket yet.
    """
    _remove_drafts()
    copies = sorted(storage.stored(), key=lambda each: each.changed_at)
    allowed_bytes = settings.THRESHOLDS.checkpoint_cache_bytes - room_bytes
    if _taken_bytes(copies) <= allowed_bytes:
        return 0
    removable = _removable([each.artifacts_path for each in copies])
    num_removed = 0
    for each in copies:
        if each.artifacts_path in removable:
            storage.remove(each.artifacts_path)
            num_removed += 1
            if _taken_bytes(storage.stored()) <= allowed_bytes:  # others may have its files
                break
    return num_removed


def _taken_bytes(copies: Iterable[storage.Stored]) -> int:
    return sum(each.size_bytes for each in copies)


def _removable(paths: Collection[str]) -> set[str]:
    """Return those that are committed, and that no running operation starts from."""
    operation_ids = {path.partition("/")[0] for path in paths}
    rows = Checkpoint.objects.filter(operation_id__in=operation_ids)
    committed = set(rows.values_list("artifacts_path", flat=True))
    for operation_id, chosen in owners().running(operation_ids):
        healthy = Checkpoint.objects.filter(operation_id=operation_id).healthy().newest_first()
        start = healthy.filter(pk=chosen).first() if chosen else healthy.first()
        if start is not None:
            committed.discard(start.artifacts_path)
    return committed - owners().exchanged(operation_ids)


def _remove_drafts() -> None:
    """Downloads of processes that were killed; by age, since others may be at work here."""
    oldest = time.time() - settings.THRESHOLDS.unowned_file_age_seconds
    for draft in storage.drafts():
        try:
            files = [file.stat() for file in (draft, *draft.iterdir())]
        except FileNotFoundError:
            continue
        if max(file.st_mtime for file in files) < oldest:
            shutil.rmtree(draft, ignore_errors=True)
