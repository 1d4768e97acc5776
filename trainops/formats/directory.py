"""A directory of checkpoints, of another tool or of an operation: which of them to go on from."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainops.engines.manifest import MANIFEST
from trainops.formats import step_directory
from trainops.formats.errors import DamagedFile
from trainops.formats.verify import verify

AGENTS = re.compile(r"checkpoint_ep(\d+)\.pt")
TRAINING = re.compile(r"epoch_(\d+)_step_(\d+)\.ckpt")
OWN = re.compile(r"a(\d{4,})-s(\d{10,})-[a-z]+(?:-(\d+))?")
EXPECTED = (
    "checkpoint_epNNNNN.pt, epoch_NNN_step_NNNNNN.ckpt, last_checkpoint with its like, and an "
    "operation's own checkpoints"
)


def is_checkpoint(path: Path) -> bool:
    """Whether the directory is one checkpoint, and not one of several."""
    return (path / MANIFEST).is_file() or step_directory.is_one(path)


def newest_healthy(directory: Path) -> tuple[Path, list[str]]:
    """Return the furthest checkpoint that all checks accept, and what is wrong with later ones.

    Numbers are compared as numbers: episode 100000 comes after 99999. Raises DamagedFile where
    none is healthy; OSError.
    """
    skipped: list[str] = []
    for path in _furthest_first(directory):
        report = verify(path)
        if report.passed:
            return path, skipped
        wrong = next(check for check in report.checks if not check.passed)
        skipped.append(f"{path.name}: {wrong.name}: {wrong.detail}")
    told = "; ".join(skipped) or f"it has none of {EXPECTED}"
    raise DamagedFile(f"{directory} has no healthy checkpoint: {told}")


def _furthest_first(directory: Path) -> list[Path]:
    paths = list(directory.iterdir())
    for pattern, is_right in ((AGENTS, Path.is_file), (TRAINING, Path.is_file), (OWN, Path.is_dir)):
        if found := _named(paths, pattern, is_right):
            return found
    return step_directory.newest(directory)


def _named(
    paths: list[Path], pattern: re.Pattern[str], is_right: Callable[[Path], Any]
) -> list[Path]:
    """Return the paths of this form, by the numbers in their names, the highest first."""
    found = [
        ([int(number or 0) for number in named.groups()], path)
        for path in paths
        if (named := pattern.fullmatch(path.name)) and is_right(path)
    ]
    return [path for _, path in sorted(found, reverse=True)]
