"""What an attempt needs of datasets, uploads and registered directories alike."""

from collections.abc import Iterable
from pathlib import Path

from django.conf import settings

from apps.datasets import services
from apps.datasets.directories import prefixes
from apps.datasets.models import DIRECTORY, Dataset
from trainops.dataset_buckets import VARIABLE
from trainops.datasets.errors import DirectoryAway
from trainops.datasets.location import Location


def directories(dataset_ids: Iterable[str]) -> set[str]:
    """Those of the ids that are registered directories."""
    rows = Dataset.objects.filter(id__in=list(dataset_ids), format=DIRECTORY)
    return set(rows.values_list("id", flat=True))


def require_reachable(dataset_ids: Iterable[str]) -> None:
    """Raise DirectoryAway for a registered directory that this machine does not have.

    A prefix of a bucket must be one that this worker allows; whether the bucket answers, the child
    finds out.
    """
    rows = Dataset.objects.filter(id__in=list(dataset_ids), format=DIRECTORY)
    for dataset_id, root in rows.values_list("id", "root"):
        if prefixes.is_prefix(root):
            _source(root)
        elif not Path(root).is_dir():
            raise DirectoryAway(f"{root} of dataset {dataset_id} is not on this worker")


def input_path(dataset_id: str) -> Path:
    """What a job is given: the Parquet file, or the location of a directory or prefix.

    Raises what `local_path` raises, and DirectoryAway for a prefix that is not allowed here.
    """
    manifest = services.local_path(dataset_id)
    dataset = services.get(dataset_id)
    if dataset.format != DIRECTORY:
        return manifest
    cache, changed_ns = settings.DATA_DIR / "cache", dataset.changed_ns or 0
    location = Location(dataset.pk, dataset.root, str(manifest), changed_ns)
    if prefixes.is_prefix(dataset.root):
        location = Location.of_prefix(
            dataset.pk, manifest, changed_ns, _source(dataset.root), cache / "prefixes",
            settings.THRESHOLDS.dataset_cache_bytes,
        )  # fmt: skip
    return location.write(cache / "directories")


def source(dataset: Dataset) -> str:
    """Return where a worker reads a directory or prefix: a path, or a URL with options.

    Raises DirectoryAway for a prefix that is not allowed any more.
    """
    return _source(dataset.root) if prefixes.is_prefix(dataset.root) else dataset.root


def _source(address: str) -> str:
    bucket = prefixes.found(address)
    if bucket is None:
        raise DirectoryAway(f"{address} is not allowed by {VARIABLE} of this worker")
    return bucket.url
