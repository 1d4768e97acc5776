"""Registering a directory where there is no server: for checks of recipes."""

from pathlib import Path

from trainops.datasets import manifest
from trainops.datasets.errors import DataError
from trainops.datasets.files import scan
from trainops.datasets.location import Location


def registered(root: Path, dataset_id: str, folder: Path) -> Path:
    """Write the manifest of a directory below `folder`; return the path of its location.

    Raises DataError for a directory without files, and for files that cannot be read.
    """
    found = scan(root)
    if not found:
        raise DataError(f"{root} holds no file")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{dataset_id}.parquet"
    manifest.make(root, found).write(target)
    newest = max(each.changed_ns for each in found)
    return Location(dataset_id, str(root), str(target), newest).write(folder)
