"""A checkpoint's directory as one file, for transfer over HTTP: an uncompressed zip."""

import re
import shutil
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from trainops.files.errors import DamagedFile, FileTooLarge
from trainops.files.known import directory_formats
from trainops.runtime.checkpoint.manifest import MANIFEST

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}(\.[a-z]{1,16})?")
MAX_FILES = 10_000
UNREADABLE = (
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError,
)  # fmt: skip


def names_in(directory: Path) -> list[str]:
    """Return the names of the files in a checkpoint's directory that are part of it."""
    found = sorted(path.name for path in directory.iterdir() if path.is_file())
    if MANIFEST in found:
        return found
    known = {name for each in directory_formats() for name in each.files}
    return [name for name in found if name in known]


def pack(directory: Path, names: Iterable[str], target: Path) -> None:
    """Write the files of this directory to a new zip. Raises OSError."""
    with zipfile.ZipFile(target, "x", compression=zipfile.ZIP_STORED) as archive:
        for name in names:
            archive.write(directory / name, name)


def is_one(path: Path) -> bool:
    """Whether a file is a packed directory: what torch.save writes has its records in a folder."""
    try:
        if not zipfile.is_zipfile(path):
            return False
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
    except UNREADABLE:
        return False
    return MANIFEST in names or any(each.mark in names for each in directory_formats())


def unpack(path: Path, directory: Path) -> None:
    """Write the files of a packed directory into this new one. Raises FormatErrors, OSError."""
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
            _check(infos, path.stat().st_size)
            directory.mkdir()
            for info in infos:
                with archive.open(info) as source, (directory / info.filename).open("xb") as target:
                    shutil.copyfileobj(source, target, 2**20)
    except UNREADABLE as error:
        raise DamagedFile(f"the packed directory cannot be read: {error}"[:200]) from error


def _check(infos: list[zipfile.ZipInfo], total_bytes: int) -> None:
    """Refuse names that lead elsewhere, and more than the file holds."""
    names = {info.filename for info in infos}
    if len(names) != len(infos) or len(infos) > MAX_FILES:
        raise DamagedFile(f"the packed directory has a file twice, or more than {MAX_FILES}")
    if wrong := sorted(name for name in names if not NAME.fullmatch(name)):
        raise DamagedFile(f"the packed directory has the file {wrong[0][:100]!r}; it must be flat")
    if any(info.compress_type != zipfile.ZIP_STORED for info in infos):
        raise FileTooLarge(
            "the packed directory is compressed; its files must be stored as they are"
        )
    if sum(info.file_size for info in infos) > total_bytes:
        raise FileTooLarge("the files of the packed directory are declared larger than it is")
