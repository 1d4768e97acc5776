"""What can be done with datasets. Called by pages, API, commands and operations; keywords only."""

import errno
import json
import logging
import shutil
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from blake3 import blake3
from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import Count, Sum
from django.utils import timezone

from apps.datasets import storage, usage, validation
from apps.datasets.errors import (
    DatasetDamaged,
    DatasetError,
    DatasetInUse,
    DatasetNotFound,
)
from apps.datasets.models import Dataset, FurtherUpload
from apps.datasets.tables.options import TableOptions
from apps.datasets.tables.rows import ColumnRow
from apps.installation import storages
from trainops import person_limits
from trainops.concurrency_limit import UPLOAD_WAIT_SECONDS
from trainops.http.access_log import note

if TYPE_CHECKING:
    from django.contrib.auth.models import User

logger = logging.getLogger(__name__)
MAX_NAME_LENGTH = 200
ID_DIGITS = 16
INSERT_ATTEMPTS = 20


class Readable(Protocol):
    """An open binary file, or an upload as Django hands it over."""

    def read(self, num_bytes: int, /) -> bytes: ...


def add_table(
    file: Readable,
    *,
    filename: str,
    name: str = "",
    owner: "User | None" = None,
    columns: Mapping[str, str] | None = None,
    encoding: str = "",
    delimiter: str = "",
) -> Dataset:
    """Validate, normalise, describe and store a CSV, Parquet, NPZ or text file; the same upload
    gives the same row.

    `columns` declares the types of some columns ({name: type}); a value that does not fit is an
    error then. Raises DatasetError; nothing is stored then.
    """
    dataset, _ = add_or_find_table(
        file,
        filename=filename,
        name=name,
        owner=owner,
        options=TableOptions(encoding=encoding, delimiter=delimiter, columns=dict(columns or {})),
    )
    return dataset


def add_or_find_table(
    file: Readable,
    *,
    filename: str,
    name: str = "",
    owner: "User | None" = None,
    options: TableOptions | None = None,
) -> tuple[Dataset, bool]:
    """As add_table; the second value says whether the dataset is new. Raises LimitReached, too."""
    options = options or TableOptions()
    row = _named(filename, name, owner)
    with full_disk_named(), storage.workspace() as directory:
        source = directory / "source"
        source_digest = _receive(file, source, options)
        return _add(source, source_digest, row, options, wait_seconds=UPLOAD_WAIT_SECONDS)


def add_or_find_file(
    source: Path, *, filename: str, name: str, owner: "User | None", options: TableOptions
) -> tuple[Dataset, bool]:
    """As add_or_find_table, of a file that is on the data disk; it is read where it lies.

    Raises ServerBusy at once: the file stays, and the caller can try again.
    """
    row = _named(filename, name, owner)
    with full_disk_named():
        return _add(source, _with_options(storage.hasher_of(source), options), row, options)


def _named(filename: str, name: str, owner: "User | None") -> Dataset:
    """Return an unsaved row with its names. Raises DatasetError."""
    filename = clean_filename(filename)
    name = clean_name(name) or Path(filename).stem or "table"
    return Dataset(name=name, filename=filename, owner=owner)


def _add(
    source: Path,
    source_digest: str,
    row: Dataset,
    options: TableOptions,
    *,
    wait_seconds: float = 0,
) -> tuple[Dataset, bool]:
    """Validate the file and store it as `row`, which has its names and its owner."""
    if (known := _known(source_digest)) and _is_also_of(row.owner, known):
        return known, False
    require_within_limits(row.owner)
    with storage.workspace() as directory:
        target = directory / "table.parquet"
        person = row.owner.get_username() if row.owner else ""
        table = validation.normalise(
            source, target, options, person=person, wait_seconds=wait_seconds
        )
        require_within_limits(row.owner, target.stat().st_size)
        described = Dataset(
            name=row.name,
            filename=row.filename,
            owner=row.owner,
            source_digest=source_digest,
            source_bytes=source.stat().st_size,
            num_columns=len(table["columns"]),
            **table,
        )
        return commit(described, target)


@contextmanager
def full_disk_named() -> Iterator[None]:
    """Raise DatasetError where the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise validation.disk_full() from error
        raise


def get(dataset_id: str) -> Dataset:
    """Raises DatasetNotFound."""
    try:
        return Dataset.objects.get(id=dataset_id)
    except Dataset.DoesNotExist:
        raise DatasetNotFound(dataset_id) from None


def missing(dataset_ids: Iterable[str]) -> list[str]:
    """Those of the ids that no dataset has.

    Inside a transaction, the rows that are there stay locked until it ends: none can be deleted
    between this question and the operation that relies on its answer.
    """
    wanted = list(dict.fromkeys(dataset_ids))
    if not wanted:
        return []
    rows = Dataset.objects.filter(id__in=wanted)
    if connection.in_atomic_block:
        rows = rows.select_for_update()
    present = set(rows.values_list("id", flat=True))
    return [dataset_id for dataset_id in wanted if dataset_id not in present]


def columns_of(dataset_ids: Iterable[str]) -> dict[str, list[ColumnRow]]:
    """The described columns of each dataset that exists, by its id."""
    rows = Dataset.objects.filter(id__in=list(dataset_ids))
    return dict(rows.values_list("id", "columns"))


def digests(dataset_ids: Iterable[str]) -> dict[str, str]:
    """The BLAKE3 of each dataset that exists, by its id."""
    rows = Dataset.objects.filter(id__in=list(dataset_ids))
    return dict(rows.values_list("id", "digest"))


def local_path(dataset_id: str) -> Path:
    """The normalised Parquet file on this machine's disk, its digest verified.

    Of a registered directory it is the manifest.

    Raises DatasetNotFound, DatasetDamaged where the bytes are gone or altered, or StorageAway
    where this machine does not have the storage of datasets.
    """
    digest = Dataset.objects.filter(id=dataset_id).values_list("digest", flat=True).first()
    if digest is None:
        raise DatasetNotFound(dataset_id)
    try:
        return storage.local_copy(digest)
    except storage.Damaged as error:
        storages.require(storage.PLACE)
        raise DatasetDamaged(dataset_id, str(error)) from error


def problem() -> str:
    """Return why datasets cannot be read on this machine now; empty where they can."""
    return storages.problem(storage.PLACE)


def delete(*, dataset_id: str, actor: "User | None" = None) -> Dataset:
    """Delete the row and its file; return the row. `actor` is None where trainops itself does it.

    Raises DatasetNotFound, or DatasetInUse while an unfinished operation names it.
    """
    with transaction.atomic():
        dataset = Dataset.objects.select_for_update().filter(id=dataset_id).first()
        if dataset is None:
            raise DatasetNotFound(dataset_id)
        if users := usage.users_of(dataset_id):
            raise DatasetInUse(dataset_id, users)
        Dataset.objects.filter(id=dataset_id).delete()
        # Before the commit: an upload of the same table waits for it, and then sees that
        # the file is gone.
        storage.remove(dataset.digest)
        if actor is not None:
            note("dataset deleted", dataset=dataset_id, name=dataset.name)
    logger.info("Dataset %s was deleted by %s", dataset_id, actor or "trainops")
    return dataset


def sweep_files() -> int:
    """Remove files that no row owns and that are too old to be in the making; return how many.

    Raises OSError, and removes nothing, where the storage is away or another installation's.
    """
    storages.require(storage.PLACE)
    age = timedelta(seconds=settings.THRESHOLDS.unowned_file_age_seconds)
    before = timezone.now() - age
    removed = 0
    for digest, changed_at in storage.stored():
        if changed_at < before and not Dataset.objects.filter(digest=digest).exists():
            storage.remove(digest)
            removed += 1
    for directory in (settings.DATA_DIR / "uploads").glob("upload-*"):
        if directory.stat().st_mtime < before.timestamp():
            shutil.rmtree(directory, ignore_errors=True)
            removed += 1
    for file in (settings.DATA_DIR / "uploads").glob("tmp*.upload*"):  # of a server that died
        with suppress(FileNotFoundError):
            if file.stat().st_mtime < before.timestamp():
                file.unlink()
                removed += 1
    return removed


def _receive(file: Readable, path: Path, options: TableOptions) -> str:
    """Write the upload to `path`; return the digest of its bytes and of how they are to be read."""
    hasher, size = blake3(), 0
    allowed = settings.THRESHOLDS.max_upload_bytes
    with path.open("wb") as copy:
        for chunk in _chunks(file):
            size += len(chunk)
            if size > allowed:
                raise too_large(allowed)
            hasher.update(chunk)
            copy.write(chunk)
    return _with_options(hasher, options)


def _with_options(hasher: blake3, options: TableOptions) -> str:
    """Return the digest of the bytes hashed so far and of the options."""
    hasher.update(json.dumps(asdict(options), sort_keys=True).encode())
    return hasher.hexdigest()


def require_within_limits(owner: "User | None", num_bytes: int = 0) -> None:
    """Raise LimitReached if another dataset of this size exceeds a limit of the owner."""
    if owner is None:
        return
    taken = Dataset.objects.filter(owner=owner).aggregate(num=Count("*"), size=Sum("size_bytes"))
    person_limits.require("datasets", "max_datasets_per_person", current=taken["num"], more=1)
    person_limits.require(
        "bytes of datasets",
        "max_dataset_bytes_per_person",
        current=taken["size"] or 0,
        more=num_bytes,
    )


def too_large(allowed: int) -> DatasetError:
    problem = f"The file is larger than the upload limit of {allowed} bytes."
    return DatasetError(
        {"file": problem}, "UPLOAD_TOO_LARGE", details={"allowed": allowed}, status=413
    )


def _chunks(file: Readable) -> Iterator[bytes]:
    while chunk := file.read(storage.CHUNK):
        yield chunk


def _known(source_digest: str) -> Dataset | None:
    """The dataset that came of the same upload, if its bytes are still there."""
    for dataset in Dataset.objects.filter(source_digest=source_digest):
        if storage.exists(dataset.digest):
            return dataset
    return None


def _is_also_of(owner: "User | None", dataset: Dataset) -> bool:
    """Record another owner of a dataset; False where the dataset was deleted a moment ago."""
    if owner is None or dataset.owner_id == owner.pk:
        return True
    with transaction.atomic():
        if not Dataset.objects.select_for_update().filter(pk=dataset.pk).exists():
            return False
        FurtherUpload.objects.get_or_create(dataset=dataset, user=owner)
    return True


def commit(row: Dataset, target: Path) -> tuple[Dataset, bool]:
    """Store the bytes, then the row; a second request finds the row of the first."""
    row.digest = storage.digest_of(target)
    row.id = f"ds_{row.digest[:ID_DIGITS]}"
    row.size_bytes = target.stat().st_size
    storage.put(target, row.digest)
    for _ in range(INSERT_ATTEMPTS - 1):
        with suppress(IntegrityError):  # it was there at the insert and deleted right after
            return _insert(row, target)
    return _insert(row, target)


def _insert(row: Dataset, target: Path) -> tuple[Dataset, bool]:
    fields = {f.name: getattr(row, f.name) for f in Dataset._meta.fields if f.name != "id"}
    fields.pop("created_at")
    with transaction.atomic():
        # The lock waits for a deletion that is under way, which may have removed the file.
        rows = Dataset.objects.select_for_update()
        dataset, is_new = rows.get_or_create(id=row.id, defaults=fields)
        if dataset.digest != row.digest:
            problem = f"Another table already has the id {row.id}."
            raise DatasetError({"file": problem}, "DATASET_ID_TAKEN", status=409)
        if not storage.exists(row.digest):
            storage.put(target, row.digest)
        if is_new:  # ids come from the content: an earlier version deleted it, and left these
            FurtherUpload.objects.filter(dataset=dataset).delete()
        else:
            _is_also_of(row.owner, dataset)
    return dataset, is_new


def clean_filename(filename: str) -> str:
    """The last part of a path of either kind of slash, without anything unprintable."""
    last = filename.replace("\\", "/").rpartition("/")[2]
    printable = "".join(c for c in unicodedata.normalize("NFC", last) if c.isprintable())
    return printable.strip(". ")[-MAX_NAME_LENGTH:]


def clean_name(name: str) -> str:
    """Return the name with single spaces. Raises DatasetError."""
    cleaned = " ".join(name.split())
    if len(cleaned) > MAX_NAME_LENGTH or not cleaned.isprintable():
        problem = f"must be printable, at most {MAX_NAME_LENGTH} characters; got {cleaned[:40]!r}"
        raise DatasetError({"name": problem}, "INVALID_NAME", details={"allowed": MAX_NAME_LENGTH})
    return cleaned
