"""The files below a directory, in the order of their names."""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from trainops.datasets.errors import DataError, DirectoryAway

MAX_FILES = 5_000_000
ABOUT = (
    "readme", "license", "licence", "checksums", "sha256sums", "md5sums", "_success", "_metadata",
    "_common_metadata", "_committed_", "_started_",
)  # fmt: skip
OF_TEXTS = frozenset({"", ".md", ".rst", ".html", ".pdf", ".md5", ".sha256", ".sha512"})
OF_DESKTOPS = frozenset({"thumbs.db", "desktop.ini"})


class FoundFile(NamedTuple):
    """A file: its name relative to the directory, and what the file system or bucket says of it.

    `changed_ns` is a time that no program can set back: the ctime, or LastModified of an object.
    """

    name: str
    size_bytes: int
    changed_ns: int
    version: str = ""  # the ETag of an object


def scan(root: Path, allowed: Sequence[Path] = ()) -> list[FoundFile]:
    """Return all files below `root`, sorted by name.

    Links to files are followed; with `allowed`, only to files below one of these. Raises
    DirectoryAway, and DataError, which names what is neither a file nor a directory.
    """
    found: list[FoundFile] = []
    for each in _walk(root, "", allowed):
        found.append(each)
        if len(found) > MAX_FILES:
            raise DataError(f"{root} has more than {MAX_FILES} files; pack them into shards")
    return sorted(found)


def is_data(name: str | PurePath) -> bool:
    """Whether a file of a directory is data, by its name: readers and layouts skip the others.

    Skipped are hidden files and folders, readmes, licences, checksums, what Spark and desktops
    leave behind. The suffix of data makes a file data, whatever it is called (`license_7.png`); of
    text files, only `readme.txt` and the like are none.
    """
    path = PurePath(name)
    if any(part.startswith(".") for part in path.parts):
        return False
    lower, suffix = path.name.lower(), path.suffix.lower()
    if suffix == ".txt":
        return path.stem.lower() not in ABOUT
    return lower not in OF_DESKTOPS and not (suffix in OF_TEXTS and lower.startswith(ABOUT))


def is_below(path: Path, roots: Sequence[Path]) -> bool:
    return any(path.is_relative_to(root) for root in roots)


def _walk(root: Path, prefix: str, allowed: Sequence[Path]) -> Iterator[FoundFile]:
    try:
        with os.scandir(root / prefix) as entries:
            for entry in entries:
                name = f"{prefix}{_readable(entry.name, root / prefix)}"
                if entry.is_dir(follow_symlinks=False):
                    yield from _walk(root, f"{name}/", allowed)
                else:
                    yield _found(root, name, entry, allowed)
    except DirectoryAway:
        raise
    except PermissionError as error:
        raise DataError(f"{error.filename} cannot be read: {error.strerror}") from error
    except OSError as error:
        is_gone = isinstance(error, FileNotFoundError | NotADirectoryError)
        why = "is not a directory" if is_gone else f"does not answer ({error.strerror})"
        raise DirectoryAway(f"{root / prefix} {why} on this machine") from error


def _found(root: Path, name: str, entry: "os.DirEntry[str]", allowed: Sequence[Path]) -> FoundFile:
    path = root / name
    if entry.is_symlink():
        target = path.resolve()
        if not target.is_file():
            raise DataError(f"{path} is a link to {target}; allowed: links to files")
        if allowed and not is_below(target, allowed):
            raise DataError(f"{path} is a link to {target}, which is outside the allowed roots")
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{path} is neither a file nor a directory")
    return FoundFile(name, status.st_size, status.st_ctime_ns)


def _readable(name: str, folder: Path) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise DataError(f"{folder} holds {name!r}; allowed: names in UTF-8") from None
    return name
