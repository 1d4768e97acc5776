"""Uploads that continue: created with a size, received in parts, finished as one dataset."""

import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import IO, TYPE_CHECKING, Any

from blake3 import blake3
from django.conf import settings
from django.db.models import Count, Sum
from django.utils import timezone

from apps.datasets import services, validation
from apps.datasets.errors import DatasetError, UploadConflict, UploadNotFound
from apps.datasets.models import Dataset, Upload
from apps.datasets.services import Readable
from apps.datasets.tables.options import TableOptions
from apps.datasets.uploads import files
from trainops import person_limits
from trainops.http.admission import COPIES

if TYPE_CHECKING:
    from django.contrib.auth.models import User

logger = logging.getLogger(__name__)
EXPIRE_SECONDS = 24 * 3600
HASHERS: dict[str, Callable[[], Any]] = {"blake3": blake3, "sha256": hashlib.sha256}
BAD_CONTENT = 400  # the status of a refusal that the same bytes would meet again


def create(
    *,
    owner: "User",
    filename: str,
    size_bytes: int,
    name: str = "",
    digest: str = "",
    fingerprint: str = "",
    options: TableOptions | None = None,
) -> Upload:
    """Open an upload; nothing of it has been received. `digest` is "blake3:HEX" or "sha256:HEX".

    Raises DatasetError and LimitReached.
    """
    allowed = settings.THRESHOLDS.max_upload_bytes
    if size_bytes > allowed:
        raise services.too_large(allowed)
    with person_limits.one_at_a_time(owner.pk):
        _require_within_limits(owner, size_bytes)
        return Upload.objects.create(
            owner=owner,
            filename=services.clean_filename(filename),
            size_bytes=size_bytes,
            name=services.clean_name(name),
            digest=digest,
            fingerprint=fingerprint,
            options=asdict(options or TableOptions()),
        )


def get(upload_id: str, *, owner: "User") -> Upload:
    """Raises UploadNotFound, also for the upload of another person."""
    upload = Upload.objects.filter(pk=upload_id, owner=owner).select_related("dataset").first()
    if upload is None:
        raise UploadNotFound(upload_id)
    return upload


def offset_of(upload: Upload) -> int:
    """Return the number of bytes received."""
    return upload.size_bytes if upload.dataset_id else files.received(upload.pk)


def append(upload_id: str, *, owner: "User", offset: int, num_bytes: int, content: Readable) -> int:
    """Append a part at `offset`; return the number of bytes received in all.

    Raises UploadNotFound, UploadConflict and DatasetError. What arrived before the connection
    broke is kept.
    """
    with _held(upload_id, owner) as (upload, file):
        _require_offset(upload, offset)
        if offset + num_bytes > upload.size_bytes:
            raise _beyond(upload, offset + num_bytes)
        try:
            with services.full_disk_named():
                files.append(file, content, num_bytes)
        finally:
            Upload.objects.filter(pk=upload_id).update(changed_at=timezone.now())
        return files.received(upload_id)


def finish(upload_id: str, *, owner: "User") -> tuple[Dataset, bool]:
    """Validate and store the whole file; the second value says whether the dataset is new.

    A finished upload is answered with its dataset. A file that is refused is discarded. Raises
    UploadNotFound, UploadConflict, DatasetError, LimitReached and ServerBusy.
    """
    with _held(upload_id, owner) as (upload, _):
        if upload.dataset is not None:
            return upload.dataset, False
        _require_complete(upload)
        try:
            dataset, is_new = _add(upload)
        except DatasetError as error:
            if error.status == BAD_CONTENT:
                _remove(upload)
            raise
        upload.dataset = dataset
        upload.save(update_fields=["dataset"])
        files.path_of(upload_id).unlink(missing_ok=True)
    return dataset, is_new


def discard(upload_id: str, *, owner: "User") -> None:
    """Delete an upload and what was received. Raises UploadNotFound and UploadConflict."""
    with _held(upload_id, owner) as (upload, _):
        _remove(upload)


def sweep() -> int:
    """Delete uploads that were not used for 24 hours, and files without a row; return how many."""
    before = timezone.now() - timedelta(seconds=EXPIRE_SECONDS)
    expired = Upload.objects.filter(changed_at__lt=before).values_list("pk", flat=True)
    owned = set(Upload.objects.values_list("pk", flat=True))
    candidates = {*expired, *(name for name in files.names() if name not in owned)}
    return sum(_expire(upload_id, before) for upload_id in candidates)


def _expire(upload_id: str, before: datetime) -> bool:
    path = files.path_of(upload_id)
    with suppress(FileNotFoundError):
        if path.stat().st_mtime >= before.timestamp():
            return False  # a part is arriving
    try:
        with files.locked(upload_id) as file:
            found = os.fstat(file.fileno())  # a part may have arrived since
            if found.st_size and found.st_mtime >= before.timestamp():
                return False
            row = Upload.objects.filter(pk=upload_id)
            num_deleted, _ = row.filter(changed_at__lt=before).delete()
            if not num_deleted and row.exists():
                return False
            path.unlink(missing_ok=True)
    except files.InUse:
        return False
    return True


@contextmanager
def _held(upload_id: str, owner: "User") -> Iterator[tuple[Upload, IO[bytes]]]:
    """The upload and its locked file. Raises UploadNotFound and UploadConflict."""
    get(upload_id, owner=owner)
    try:
        with files.locked(upload_id) as file:
            yield get(upload_id, owner=owner), file  # it may have ended before the lock
    except files.InUse:
        message = (
            "Another request is writing or finishing this upload. Try again when it has ended."
        )
        raise UploadConflict("UPLOAD_BUSY", message, upload_id, files.received(upload_id)) from None


def _require_offset(upload: Upload, offset: int) -> None:
    current = offset_of(upload)
    if upload.dataset_id:
        message = f"The upload is finished: it is the dataset {upload.dataset_id}."
        raise UploadConflict("UPLOAD_FINISHED", message, upload.pk, current)
    if offset != current:
        message = f"Upload-Offset: got {offset}; allowed: {current}, the number of bytes received."
        raise UploadConflict("WRONG_OFFSET", message, upload.pk, current)


def _require_complete(upload: Upload) -> None:
    current = offset_of(upload)
    if current != upload.size_bytes:
        message = f"Received {current} of {upload.size_bytes} bytes. Send the rest, then finish."
        raise UploadConflict("UPLOAD_INCOMPLETE", message, upload.pk, current)


def _require_digest(upload: Upload) -> None:
    algorithm, _, expected = upload.digest.partition(":")
    if not algorithm:
        return
    hasher = HASHERS[algorithm]()
    with files.path_of(upload.pk).open("rb") as file:
        while block := file.read(files.BLOCK_BYTES):
            hasher.update(block)
    if (found := hasher.hexdigest()) != expected:
        problem = (
            f"got a file with the {algorithm} digest {found}; allowed: {expected}, the announced "
            "one. The file changed while it was sent; upload it again."
        )
        raise DatasetError({"digest": problem}, "WRONG_DIGEST")


def _add(upload: Upload) -> tuple[Dataset, bool]:
    _require_digest(upload)
    return services.add_or_find_file(
        files.path_of(upload.pk),
        filename=upload.filename,
        name=upload.name,
        owner=upload.owner,
        options=TableOptions(**upload.options),
    )


def _remove(upload: Upload) -> None:
    """Delete row and file; the caller holds the lock."""
    path = files.path_of(upload.pk)
    upload.delete()
    path.unlink(missing_ok=True)


def _require_within_limits(owner: "User", size_bytes: int) -> None:
    services.require_within_limits(owner)
    current = Upload.objects.filter(owner=owner, dataset=None).aggregate(
        num=Count("*"), size=Sum("size_bytes")
    )
    person_limits.require(
        "open uploads", "max_open_uploads_per_person", current=current["num"], more=1
    )
    person_limits.require(
        "bytes of open uploads",
        "max_open_upload_bytes_per_person",
        current=current["size"] or 0,
        more=size_bytes,
    )
    free = shutil.disk_usage(files.directory()).free
    if free < COPIES * size_bytes + settings.THRESHOLDS.checkpoint_reserve_bytes:
        raise validation.disk_full()


def _beyond(upload: Upload, end: int) -> DatasetError:
    problem = f"got a part that ends at byte {end}; allowed: {upload.size_bytes}, the file's size"
    return DatasetError(
        {"file": problem}, "UPLOAD_TOO_LARGE", details={"allowed": upload.size_bytes}, status=413
    )
