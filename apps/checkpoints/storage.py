"""Where the bytes of checkpoints lie on this machine. Every path that is built comes from here.

Where checkpoints are kept in a bucket (apps.checkpoints.remote), they are staged here, and copies
of them stay.
"""

import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from trainops.runtime.checkpoint.manifest import DIRECTORY_NAME, MANIFEST, Artifact

RECOVERY_RECORD = "unsettled.json"  # beside staged files that an absent database could not commit
SIGNATURE = "signature.json"  # beside the manifest: see apps.checkpoints.signatures
MAX_SIGNATURE_BYTES = 4096
DRAFT = ".draft"  # ends the names of directories that are being downloaded
_OPERATION_ID = re.compile(r"op_[a-z]+_\d{8}_\d{6}_[a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Stored:
    """One checkpoint's directory, wherever it is."""

    artifacts_path: str
    size_bytes: int
    changed_at: float  # seconds since 1970
    is_will: bool = False  # it was left for the next owner
    is_whole: bool = False  # it has a manifest, which is written last
    names: tuple[str, ...] = ()  # of its objects, where it is in a bucket

    @property
    def operation_id(self) -> str:
        return self.artifacts_path.partition("/")[0]

    @property
    def attempt(self) -> int:
        """The number of the only attempt that may write it."""
        return attempt_of(self.artifacts_path.partition("/")[2])

    @property
    def step(self) -> int:
        return step_of(self.artifacts_path.partition("/")[2])


def is_operation_id(text: str) -> bool:
    """Whether a text has the form of the ids that apps.operations.ids makes."""
    return bool(_OPERATION_ID.fullmatch(text))


def operation_directory(operation_id: str) -> Path:
    """Return the directory that holds all checkpoints of one operation.

    Raises:
        ValueError: the id is not one that we made; it never becomes a path.
    """
    if not is_operation_id(operation_id):
        raise ValueError(f"not an operation id: {operation_id!r}")
    return settings.CHECKPOINT_ROOT / operation_id


def directory(artifacts_path: str) -> Path:
    """Return the directory of one checkpoint from its row's `artifacts_path`."""
    operation_id, _, name = artifacts_path.partition("/")
    if not DIRECTORY_NAME.fullmatch(name):
        raise ValueError(f"not a checkpoint directory: {artifacts_path!r}")
    return operation_directory(operation_id) / name


def location(artifacts_path: str, artifact: Artifact) -> str:
    """Return the name of a file's object in a bucket, which has each file once."""
    operation_id, _, name = artifacts_path.partition("/")
    return f"{operation_id}/{artifact.home or name}/{artifact.name}"


def is_of_one_attempt(artifacts_path: str, home: str) -> bool:
    """Whether a checkpoint and the home of one of its files belong to the same attempt."""
    name = artifacts_path.partition("/")[2]
    return not home or attempt_of(name) == attempt_of(home)


def manifest_location(artifacts_path: str) -> str:
    return f"{artifacts_path}/{MANIFEST}"


def signature_location(artifacts_path: str) -> str:
    return f"{artifacts_path}/{SIGNATURE}"


def is_artifacts_path(text: str) -> bool:
    operation_id, _, name = text.partition("/")
    return is_operation_id(operation_id) and bool(DIRECTORY_NAME.fullmatch(name))


def attempt_of(name: str) -> int:
    """Return the number of the attempt that a checkpoint's directory belongs to.

    Raises:
        ValueError: it is no name of such a directory.
    """
    return _numbers(name)[0]


def step_of(name: str) -> int:
    """Return the step of the checkpoint that a directory holds. Raises ValueError."""
    return _numbers(name)[1]


def _numbers(name: str) -> tuple[int, int]:
    if DIRECTORY_NAME.fullmatch(name) is None:
        raise ValueError(f"not a checkpoint directory: {name!r}")
    attempt, step, *_ = name.split("-")
    return int(attempt.removeprefix("a")), int(step.removeprefix("s"))


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


def stored(operation_id: str = "op_*") -> Iterator[Stored]:
    """Yield every checkpoint directory, or those of one operation, with a row or without."""
    for path in settings.CHECKPOINT_ROOT.glob(f"{operation_id}/a*"):
        artifacts_path = f"{path.parent.name}/{path.name}"
        if is_artifacts_path(artifacts_path):
            with suppress(FileNotFoundError):  # another process has removed it
                yield _described(artifacts_path, path)


def _described(artifacts_path: str, path: Path) -> Stored:
    files = [file.stat() for file in path.iterdir()]
    return Stored(
        artifacts_path,
        size_bytes=sum(file.st_size // file.st_nlink for file in files),  # shared in equal parts
        changed_at=max(file.st_mtime for file in (path.stat(), *files)),
        is_will=(path / RECOVERY_RECORD).exists(),
        is_whole=(path / MANIFEST).exists(),
    )


def drafts() -> Iterator[Path]:
    """Yield directories that are being downloaded, or were when a process was killed."""
    yield from settings.CHECKPOINT_ROOT.glob(f"op_*/.a*{DRAFT}")
