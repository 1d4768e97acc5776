"""The archive that torch.save writes: stored records in one folder, and nothing else in it."""

import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from trainops.formats.errors import DamagedFile, TooLarge

BEGINNING, END = b"PK\x03\x04", b"PK\x05\x06"
END_BYTES = 22
FLAGS = 0x0808  # sizes after the content, names in UTF-8: what torch.save sets
CHUNK_BYTES = 2**20
PICKLE, BYTE_ORDER = "data.pkl", "byteorder"
STORAGE = re.compile(r"data/([0-9]{1,9})")
KNOWN = frozenset(
    {
        PICKLE,
        BYTE_ORDER,
        "version",
        ".format_version",
        ".storage_alignment",
        ".data/serialization_id",
    }
)
UNREADABLE = (
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OverflowError, RuntimeError,
    ValueError, struct.error,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Archive:
    """`storages` maps the key of each storage to its size in bytes."""

    pickle: bytes
    storages: Mapping[str, int]
    total_bytes: int


def read_archive(file: BinaryIO) -> Archive:
    """Return the pickle and the sizes of the rest, every record's checksum compared.

    Raises DamagedFile and TooLarge; OSError where the disk does not answer. The file stands
    anywhere afterwards.
    """
    total_bytes = file.seek(0, 2)
    _check_ends(file, total_bytes)
    with _told_as_damage(), zipfile.ZipFile(file) as archive:
        records = _records(archive, total_bytes)
        if not any(record.CRC for record in records.values()):
            _expect_no_checksums(records.values())
        for record in records.values():
            _compare_checksum(archive, record)
        if BYTE_ORDER in records and archive.read(records[BYTE_ORDER]) != b"little":
            raise DamagedFile("the numbers in the file are not little-endian")
        return Archive(
            pickle=archive.read(records[PICKLE]),
            storages={
                found[1]: record.file_size
                for name, record in records.items()
                if (found := STORAGE.fullmatch(name))
            },
            total_bytes=total_bytes,
        )


@contextmanager
def _told_as_damage() -> Iterator[None]:
    try:
        yield
    except UNREADABLE as error:
        raise DamagedFile(f"the archive cannot be read: {error}"[:200]) from error


def _check_ends(file: BinaryIO, total_bytes: int) -> None:
    """Two readers find the same records only where nothing stands before or after them."""
    if total_bytes == 0:
        raise DamagedFile("the file is empty")
    file.seek(0)
    if file.read(len(BEGINNING)) != BEGINNING:
        raise DamagedFile("the file does not begin as an archive of torch.save does")
    file.seek(max(0, total_bytes - END_BYTES))
    if file.read(len(END)) != END:
        raise DamagedFile("the file does not end as an archive does; the rest of it is missing")


def _records(archive: zipfile.ZipFile, total_bytes: int) -> dict[str, zipfile.ZipInfo]:
    """Return the records by their names without the folder, each known, plain and there once."""
    infos = archive.infolist()
    if sum(info.file_size for info in infos) > total_bytes:
        raise TooLarge("the records of the archive are declared larger than the file is")
    if not infos or archive.comment or min(info.header_offset for info in infos) != 0:
        raise DamagedFile("something stands beside the records of the archive")
    folder = infos[0].orig_filename.partition("/")[0]
    records: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        name = _known_name(info.orig_filename, folder)
        if name in records:
            raise DamagedFile(f"the archive has the record {name!r} twice")
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise TooLarge(f"the record {name!r} is compressed; torch.save stores records as is")
        if info.flag_bits & ~FLAGS:
            raise DamagedFile(f"the record {name!r} has the flags {info.flag_bits:#x}")
        records[name] = info
    if PICKLE not in records:
        raise DamagedFile(f"the archive has no record {PICKLE!r}")
    return records


def _known_name(path: str, folder: str) -> str:
    name = path.removeprefix(f"{folder}/")
    if folder in ("", ".", "..") or name == path or not (name in KNOWN or STORAGE.fullmatch(name)):
        raise DamagedFile(
            f"the archive has the record {path[:100]!r}, which torch.save never writes"
        )
    return name


def _expect_no_checksums(records: Iterable[zipfile.ZipInfo]) -> None:
    """torch.save can leave them out, as our own checkpoints do; then all of them are zero."""
    for record in records:
        record.CRC = None  # type: ignore[assignment]  # zipfile then compares nothing


def _compare_checksum(archive: zipfile.ZipFile, record: zipfile.ZipInfo) -> None:
    """Read the record to its end, where its checksum is compared."""
    with archive.open(record) as content:
        while content.read(CHUNK_BYTES):
            pass
