"""Prefixes of buckets: which ones this installation allows, by TRAINOPS_DATASET_BUCKETS."""

from django.conf import settings

from apps.datasets.errors import DatasetError
from trainops import dataset_buckets
from trainops.checkpoint_storage import Bucket


def is_prefix(path: str) -> bool:
    """Whether a path, given or stored, names a prefix of a bucket and not a directory."""
    return "://" in path and not path.startswith("/")


def found(address: str) -> Bucket | None:
    """Return the prefix with its endpoint and region; None where it is not allowed any more.

    `address` is the stored one.
    """
    return dataset_buckets.within(dataset_buckets.named(address), settings.DATASET_BUCKETS)


def allowed(address: str) -> Bucket:
    """Return the prefix that a user names, with its endpoint and region. Raises DatasetError."""
    if not settings.DATASET_BUCKETS:
        problem = (
            "This installation allows no buckets; its administrator names the allowed prefixes in "
            f"{dataset_buckets.VARIABLE}."
        )
        raise DatasetError({"path": problem}, "NO_DATASET_BUCKETS", status=403)
    try:
        given = found(address)
    except ValueError as error:
        raise DatasetError({"path": str(error)}, "INVALID_PATH") from None
    if given is None:
        shown = ", ".join(map(str, settings.DATASET_BUCKETS))
        problem = f"got {address[:200]!r}; allowed: prefixes below {shown}"
        raise DatasetError({"path": problem}, "PATH_NOT_ALLOWED", status=403)
    return given
