"""Directories and prefixes of buckets that all workers reach: registered by a manifest, verified.

Nothing is copied.
"""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from django.conf import settings

from apps.datasets import services, storage
from apps.datasets.directories import prefixes
from apps.datasets.directories.messages import DirectoryAnswer
from apps.datasets.errors import DatasetError, DatasetNotDirectory
from apps.datasets.models import DIRECTORY, Dataset
from trainops import dataset_buckets
from trainops.concurrency_limit import ConcurrencyLimit
from trainops.confined import limits as confined
from trainops.confined.calling import ConfinedProcessFailed, OutOfMemory, OutOfTime, call
from trainops.datasets.description import DirectoryVerification
from trainops.datasets.sampling import Sample

if TYPE_CHECKING:
    from django.contrib.auth.models import User

logger = logging.getLogger(__name__)
MEMORY_BYTES = 6 * 1024**3
SECONDS = 6 * 3600
_limit = ConcurrencyLimit(2)  # each takes a thread that answers requests


class DirectoryLocation(NamedTuple):
    """What is registered: the path or address of the row; of a prefix also the URL with options."""

    root: str
    source: str = ""


def add_or_find(path: str, *, name: str = "", owner: "User | None" = None) -> tuple[Dataset, bool]:
    """Register the directory at an absolute path, or the prefix `s3://BUCKET/PREFIX`.

    The second value says whether the dataset is new. The id follows from names, sizes and digests,
    so the same content elsewhere is the same dataset. It is then read from the new path, if the old
    one is gone or the owner is the same. Raises DatasetError, LimitReached and ServerBusy.
    """
    place = _place(path)
    filename = place.root.rpartition("/")[2]
    name = services.clean_name(name) or filename
    services.require_within_limits(owner)
    with storage.workspace() as directory:
        target = directory / "manifest.parquet"
        added = _call("add", place, target, owner)["added"]
        layout = added["layout"]
        row = Dataset(
            name=name, filename=filename[: services.MAX_NAME_LENGTH], owner=owner,
            source_digest="", source_bytes=layout["num_bytes"], format=DIRECTORY,
            num_rows=layout["num_files"], num_columns=0, columns=[], preview=added["first"],
            layout=layout, root=place.root, changed_ns=added["changed_ns"],
        )  # fmt: skip
        dataset, is_new = services.commit(row, target)
    if not is_new and _may_move(dataset, place.root, owner):
        dataset.root, dataset.changed_ns = place.root, added["changed_ns"]
        dataset.save(update_fields=["root", "changed_ns"])
    logger.info("%s was registered as %s by %s", place.root, dataset.pk, owner or "trainops")
    return dataset, is_new


def verify(
    dataset_id: str, sample: Sample | None = None, *, actor: "User | None" = None
) -> DirectoryVerification:
    """Compare all names and sizes, and all files or a sample of them, with the manifest.

    Raises DatasetNotFound, DatasetNotDirectory, DatasetDamaged, DatasetError and ServerBusy.
    """
    dataset = services.get(dataset_id)
    if dataset.format != DIRECTORY:
        raise DatasetNotDirectory(dataset_id)
    place = _place(dataset.root)
    return _call("verify", place, services.local_path(dataset_id), actor, sample)["verified"]


def _may_move(dataset: Dataset, root: str, owner: "User | None") -> bool:
    if dataset.root == root or dataset.owner == owner:
        return True
    if prefixes.is_prefix(dataset.root):
        return prefixes.found(dataset.root) is None
    return not Path(dataset.root).is_dir()


def _place(path: str) -> DirectoryLocation:
    """Raises DatasetError."""
    if prefixes.is_prefix(path):
        bucket = prefixes.allowed(path)
        return DirectoryLocation(str(bucket), bucket.url)
    return DirectoryLocation(str(_allowed(path)))


def _allowed(path: str) -> Path:
    """Return the directory without links in its path. Raises DatasetError."""
    roots: tuple[Path, ...] = settings.DATASET_ROOTS
    if not roots:
        problem = (
            "This installation allows no directories; its administrator names the allowed ones in "
            "TRAINOPS_DATASET_ROOTS."
        )
        raise DatasetError({"path": problem}, "NO_DATASET_ROOTS", status=403)
    shown = ", ".join(map(str, roots))
    if "\x00" in path or not Path(path).is_absolute():
        problem = f"got {path[:200]!r}; allowed: absolute paths below {shown}"
        raise DatasetError({"path": problem}, "INVALID_PATH")
    root = Path(path).resolve()
    if not any(root.is_relative_to(each) for each in roots):
        problem = f"got {path[:200]!r}; allowed: directories below {shown}"
        raise DatasetError({"path": problem}, "PATH_NOT_ALLOWED", status=403)
    if not root.is_dir():
        problem = f"{root} is not a directory on the server; it must be there and on all workers"
        raise DatasetError({"path": problem}, "NO_DIRECTORY")
    return root


def _call(
    action: Literal["add", "verify"],
    place: DirectoryLocation,
    manifest: Path,
    actor: "User | None",
    sample: Sample | None = None,
) -> DirectoryAnswer:
    request = {
        "action": action,
        "root": place.root,
        "source": place.source,
        "allowed": [str(each) for each in settings.DATASET_ROOTS],
        "manifest": str(manifest),
        "sample": sample,
    }
    within = confined.Limits(MEMORY_BYTES, SECONDS, file_bytes=MEMORY_BYTES)
    try:
        with _limit.taken(actor.get_username() if actor else ""):
            kept = {"kept": dataset_buckets.variables()} if place.source else {}
            answer = cast(
                DirectoryAnswer, call("apps.datasets.directories.child", request, within, **kept)
            )
    except ConfinedProcessFailed as error:
        raise _unreadable(place.root, error) from error
    if "refused" in answer:
        raise DatasetError({"path": answer["refused"]}, "UNREADABLE_DIRECTORY")
    return answer


def _unreadable(root: str, error: ConfinedProcessFailed) -> DatasetError:
    match error:
        case OutOfMemory() | OutOfTime():
            problem = f"{root} cannot be read within the limits of the server. {error}"
        case _:
            logger.warning("The reader of a directory failed: %s\n%s", error, error.log)
            problem = f"The reader of {root} crashed: a file is damaged or malicious."
    return DatasetError({"path": problem}, "UNREADABLE_DIRECTORY")
