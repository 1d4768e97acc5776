"""The archive that torch.save writes: stored records in one folder, and nothing else in it."""

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import torch

from trainops.files.errors import DamagedFile, FileTooLarge
from trainops.files.layout import Record, read_layout

BEGINNING = b"PK\x03\x04"
CHUNK_BYTES = 2**20
MAX_PICKLE_BYTES = 256 * 2**20
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


@dataclass(frozen=True, slots=True)
class Archive:
    """`storages` maps the key of each storage to its size in bytes."""

    pickle: bytes
    storages: Mapping[str, int]
    total_bytes: int


def read_archive(file: BinaryIO) -> Archive:
    """Return the pickle and the sizes of the rest, every record's checksum compared.

    The pickle comes from the reader that torch.load uses; that this reader finds the same records
    as the layout is checked. Raises DamagedFile and FileTooLarge; OSError where the disk does not
    answer. The file stands anywhere afterwards.
    """
    total_bytes = file.seek(0, 2)
    if total_bytes == 0:
        raise DamagedFile("the file is empty")
    file.seek(0)
    if file.read(len(BEGINNING)) != BEGINNING:
        raise DamagedFile("the file does not begin as an archive of torch.save does")
    records = _by_name(read_layout(file, total_bytes))
    if any(record.crc for record in records.values()):  # torch.save can leave them out
        for name, record in records.items():
            _compare_checksum(file, name, record)
    if records[PICKLE].num_bytes > MAX_PICKLE_BYTES:
        raise FileTooLarge(
            f"the pickle has {records[PICKLE].num_bytes} bytes; at most {MAX_PICKLE_BYTES} are read"
        )
    return Archive(
        pickle=_loaded_pickle(file, records),
        storages={
            found[1]: record.num_bytes
            for name, record in records.items()
            if (found := STORAGE.fullmatch(name))
        },
        total_bytes=total_bytes,
    )


def _by_name(layout: Sequence[Record]) -> dict[str, Record]:
    """Return the records by their names without the folder, each known and there once."""
    if not layout:
        raise DamagedFile("the archive has no records")
    folder = layout[0].path.partition("/")[0]
    records: dict[str, Record] = {}
    for record in layout:
        name = _known_name(record.path, folder)
        if name in records:
            raise DamagedFile(f"the archive has the record {name!r} twice")
        records[name] = record
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


def _compare_checksum(file: BinaryIO, name: str, record: Record) -> None:
    file.seek(record.at)
    crc, num_left = 0, record.num_bytes
    while num_left:
        chunk = file.read(min(num_left, CHUNK_BYTES))
        if not chunk:
            raise DamagedFile(f"the record {name!r} ends before its {record.num_bytes} bytes")
        crc, num_left = zlib.crc32(chunk, crc), num_left - len(chunk)
    if crc != record.crc:
        raise DamagedFile(f"the record {name!r} differs from its checksum")


def _loaded_pickle(file: BinaryIO, records: Mapping[str, Record]) -> bytes:
    """Return the pickle as the reader of torch.load finds it. Raises DamagedFile."""
    file.seek(0)
    try:
        reader = torch._C.PyTorchFileReader(file)
        found = {
            name: (_offset(reader, name), reader.get_record_size(name))
            for name in reader.get_all_records()
        }
        if found != {name: (each.at, each.num_bytes) for name, each in records.items()}:
            raise DamagedFile("torch finds other records in the archive than its layout has")
        if BYTE_ORDER in records and reader.get_record(BYTE_ORDER) != b"little":
            raise DamagedFile("the numbers in the file are not little-endian")
        pickle: bytes = reader.get_record(PICKLE)
    except (RuntimeError, ValueError, UnicodeDecodeError) as error:
        raise DamagedFile(f"the archive cannot be read: {error}"[:200]) from error
    return pickle


def _offset(reader: torch._C.PyTorchFileReader, name: str) -> int:
    at: int = reader.get_record_offset(name)  # type: ignore[attr-defined]  # torch.load calls it
    return at
