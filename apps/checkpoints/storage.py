"""Where the bytes of checkpoints lie. Every path that is built or removed comes from here."""

import re
import shutil
from pathlib import Path

from django.conf import settings

WILL = "unsettled.json"  # beside staged files that an absent database could not commit
_OPERATION_ID = re.compile(r"op_[a-z]+_\d{8}_\d{6}_[a-z0-9]+")
_DIRECTORY = re.compile(r"a(\d{4,})-s\d{10,}-[a-z]+(-\d+)?")


def operation_directory(operation_id: str) -> Path:
    """Return the directory that holds all checkpoints of one operation.

    Raises:
        ValueError: the id is not one that we made; it never becomes a path.
    """
    if not _OPERATION_ID.fullmatch(operation_id):
        raise ValueError(f"not an operation id: {operation_id!r}")
    return settings.CHECKPOINT_ROOT / operation_id


def directory(artifacts_path: str) -> Path:
    """Return the directory of one checkpoint from its row's `artifacts_path`."""
    operation_id, _, name = artifacts_path.partition("/")
    if not _DIRECTORY.fullmatch(name):
        raise ValueError(f"not a checkpoint directory: {artifacts_path!r}")
    return operation_directory(operation_id) / name


def attempt_of(path: Path) -> int:
    """Return the number of the only attempt that may write this checkpoint's directory."""
    found = _DIRECTORY.fullmatch(path.name)
    assert found, path  # noqa: S101 - `stored` yields nothing else
    return int(found[1])


def remove(artifacts_path: str) -> None:
    """Remove one checkpoint's files, if they are there, and its operation's empty directory."""
    path = directory(artifacts_path)
    shutil.rmtree(path, ignore_errors=True)
    remove_if_empty(path.parent)


def remove_if_empty(path: Path) -> None:
    try:
        path.rmdir()
    except OSError:
        return  # not empty, or gone already


def free_bytes() -> int:
    """Return how much room is left where checkpoints are written."""
    path: Path = settings.CHECKPOINT_ROOT
    while not path.exists():  # before the first checkpoint
        path = path.parent
    return shutil.disk_usage(path).free


def stored() -> list[Path]:
    """Return every checkpoint directory there is, owned by a row or not."""
    return [
        path
        for path in settings.CHECKPOINT_ROOT.glob("op_*/a*")
        if _DIRECTORY.fullmatch(path.name) and _OPERATION_ID.fullmatch(path.parent.name)
    ]
