"""A directory of checkpoints, of another tool or of an operation: which to continue from."""

import re
from collections.abc import Callable
from pathlib import Path

from trainops.files.description import FileFormat
from trainops.files.errors import DamagedFile
from trainops.files.known import directory_format_of, directory_formats, formats
from trainops.files.verify import verify
from trainops.runtime.checkpoint.manifest import MANIFEST

OWN = re.compile(r"a(\d{4,})-s(\d{10,})-[a-z]+(?:-(\d+))?")


def is_checkpoint(path: Path) -> bool:
    """Whether the directory is one checkpoint, and not one of several."""
    return (path / MANIFEST).is_file() or directory_format_of(path) is not None


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
    reasons = "; ".join(skipped) or f"it contains none of {_expected()}"
    raise DamagedFile(f"{directory} has no healthy checkpoint: {reasons}")


def _furthest_first(directory: Path) -> list[Path]:
    paths = list(directory.iterdir())
    for each in _named_formats():
        if each.named and (found := _named(paths, each.named, Path.is_file)):
            return found
    if found := _named(paths, OWN, Path.is_dir):
        return found
    return next(filter(None, (each.newest(directory) for each in directory_formats())), [])


def _named_formats() -> list[FileFormat]:
    """Return the formats whose files have names that say how far they are, by these names."""
    return sorted((each for each in formats() if each.named), key=lambda each: each.named_like)


def _expected() -> str:
    """Return all names that are known, as a person would describe them."""
    files = [each.named_like for each in _named_formats()]
    directories = [each.named_like for each in directory_formats()]
    return ", ".join([*files, *directories, "and an operation's own checkpoints"])


def _named(
    paths: list[Path], pattern: re.Pattern[str], is_right: Callable[[Path], object]
) -> list[Path]:
    """Return the paths of this form, by the numbers in their names, the highest first."""
    found = [
        ([int(number or 0) for number in named.groups()], path)
        for path in paths
        if (named := pattern.fullmatch(path.name)) and is_right(path)
    ]
    return [path for _, path in sorted(found, reverse=True)]
