"""The layout of an archive that torch.save writes: where each record is, and nothing between them.

ZIP readers disagree about files that hold two directories, or bytes that no record owns: one file
can show a harmless pickle to a reader that inspects it and another pickle to the reader that loads
it. So each byte has to belong to exactly one record here, and to the only directory.

Structures: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 to 4.5.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from trainops.files.errors import DamagedFile, FileTooLarge

END = struct.Struct("<4s4H2IH")
END_64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR_64 = struct.Struct("<4sIQI")
ENTRY = struct.Struct("<4s6H3I5H2I")  # of the directory
HEADER = struct.Struct("<4s5H3I2H")  # before the content
DESCRIPTOR, DESCRIPTOR_64 = struct.Struct("<4s3I"), struct.Struct("<4sI2Q")  # after the content
FIELD = struct.Struct("<2H")  # id and length of an extra field
ZIP64 = 1  # the id of the extra field with 64-bit numbers
IN_ZIP64, IN_ZIP64_16 = 0xFFFFFFFF, 0xFFFF  # "the number is in the ZIP64 field"
SIZES_FOLLOW, UTF8 = 0x0008, 0x0800
STORED = 0
MAX_DIRECTORY_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Record:
    """`at` is the offset of the content in the file."""

    path: str
    at: int
    num_bytes: int
    crc: int


@dataclass(frozen=True, slots=True)
class _Entry:
    path: bytes
    flags: int
    header_at: int
    num_bytes: int
    crc: int


def read_layout(file: BinaryIO, total_bytes: int) -> list[Record]:
    """Return the records in the order of the file. Raises DamagedFile and FileTooLarge."""
    try:
        num, directory_at, directory_bytes = _read_end(file, total_bytes)
        if directory_bytes > MAX_DIRECTORY_BYTES:
            raise FileTooLarge(f"the archive's directory has {directory_bytes} bytes")
        directory = _read(file, directory_at, directory_bytes)
        records, at = [], 0
        for entry in _entries(directory, num):
            record, at = _locate(file, entry, at)
            records.append(record)
    except (struct.error, UnicodeDecodeError) as error:
        raise DamagedFile(f"the archive cannot be read: {error}"[:200]) from error
    if at != directory_at:
        raise DamagedFile("something stands between the records of the archive and its directory")
    return records


def _read_end(file: BinaryIO, total_bytes: int) -> tuple[int, int, int]:
    """Return the number of records, and where the directory is with how many bytes."""
    end_at = total_bytes - END.size
    if end_at < 0:
        raise DamagedFile("the file does not end as an archive does; the rest of it is missing")
    signature, disk, first_disk, _, num, num_bytes, at, comment_bytes = END.unpack(
        _read(file, end_at, END.size)
    )
    if signature != b"PK\x05\x06":
        raise DamagedFile("the file does not end as an archive does; the rest of it is missing")
    if disk or first_disk or comment_bytes:
        raise DamagedFile("something stands beside the records of the archive")
    if (found := _read_end_64(file, end_at)) is not None:
        end_at, num_64, num_bytes_64, at_64 = found
        short = (
            (num, num_64, IN_ZIP64_16),
            (num_bytes, num_bytes_64, IN_ZIP64),
            (at, at_64, IN_ZIP64),
        )
        if any(given not in (number, elsewhere) for given, number, elsewhere in short):
            raise DamagedFile("the archive has two directories")
        num, num_bytes, at = num_64, num_bytes_64, at_64
    if at + num_bytes != end_at:
        raise DamagedFile("the archive's directory is not where its end says")
    return num, at, num_bytes


def _read_end_64(file: BinaryIO, end_at: int) -> tuple[int, int, int, int] | None:
    """Return where the ZIP64 end record is, and its numbers; None where there is none."""
    locator_at = end_at - LOCATOR_64.size
    if locator_at < 0:
        return None
    signature, disk, at, num_disks = LOCATOR_64.unpack(_read(file, locator_at, LOCATOR_64.size))
    if signature != b"PK\x06\x07":
        return None
    if at != locator_at - END_64.size or disk or num_disks > 1:
        raise DamagedFile("the archive has a ZIP64 end record elsewhere")
    signature, rest, _, _, disk, first_disk, here, num, num_bytes, directory_at = END_64.unpack(
        _read(file, at, END_64.size)
    )
    if signature != b"PK\x06\x06" or rest != END_64.size - 12 or disk or first_disk or here != num:
        raise DamagedFile("the archive's ZIP64 end record is damaged")
    return at, num, num_bytes, directory_at


def _entries(directory: bytes, num: int) -> Iterator[_Entry]:
    at = 0
    for _ in range(num):
        (
            signature, _, _, flags, method, _, _, crc, stored_bytes, num_bytes, path_bytes,
            extra_bytes, comment_bytes, disk, _, _, header_at,
        ) = ENTRY.unpack_from(directory, at)  # fmt: skip
        at += ENTRY.size
        path = directory[at : at + path_bytes]
        extra = directory[at + path_bytes : at + path_bytes + extra_bytes]
        at += path_bytes + extra_bytes
        if signature != b"PK\x01\x02" or at > len(directory):
            raise DamagedFile("the archive's directory is damaged")
        if method != STORED:
            raise FileTooLarge(
                f"the record {_shown(path)} is compressed; torch.save stores records as is"
            )
        if flags & ~(SIZES_FOLLOW | UTF8) or comment_bytes or disk:
            raise DamagedFile(f"the record {_shown(path)} has the flags {flags:#x}, or a comment")
        num_bytes, stored_bytes, header_at = _long(extra, num_bytes, stored_bytes, header_at)
        if num_bytes != stored_bytes:
            raise FileTooLarge(f"the record {_shown(path)} is declared larger than it is stored")
        yield _Entry(path, flags, header_at, num_bytes, crc)
    if at != len(directory):
        raise DamagedFile("something stands behind the archive's directory")


def _long(extra: bytes, *numbers: int) -> tuple[int, ...]:
    """Return the numbers, those from the ZIP64 field that the entry itself has no room for."""
    long = [number == IN_ZIP64 for number in numbers]
    if not any(long):
        if extra:
            raise DamagedFile("the archive's directory has fields that torch.save never writes")
        return numbers
    kind, num_bytes = FIELD.unpack_from(extra)
    if kind != ZIP64 or num_bytes != 8 * sum(long) or len(extra) != FIELD.size + num_bytes:
        raise DamagedFile("the archive's directory has a wrong ZIP64 field")
    values = iter(struct.unpack_from(f"<{sum(long)}Q", extra, FIELD.size))
    return tuple(next(values) if is_long else n for n, is_long in zip(numbers, long, strict=True))


def _locate(file: BinaryIO, entry: _Entry, at: int) -> tuple[Record, int]:
    """Return the record that begins at `at`, and where the next one begins."""
    if entry.header_at != at:
        raise DamagedFile("something stands between the records of the archive")
    signature, _, flags, method, _, _, crc, stored_bytes, num_bytes, path_bytes, extra_bytes = (
        HEADER.unpack(_read(file, at, HEADER.size))
    )
    at += HEADER.size
    path = _read(file, at, path_bytes)
    if signature != b"PK\x03\x04" or (path, flags, method) != (entry.path, entry.flags, STORED):
        raise DamagedFile("a record of the archive differs from its entry in the directory")
    at += path_bytes + extra_bytes
    given, known = (crc, stored_bytes, num_bytes), (entry.crc, entry.num_bytes, entry.num_bytes)
    if not flags & SIZES_FOLLOW and not _agree(given, known):
        raise DamagedFile("a record of the archive differs from its entry in the directory")
    record = Record(entry.path.decode(), at, entry.num_bytes, entry.crc)
    at += entry.num_bytes
    return record, at + (_descriptor_bytes(file, at, known) if flags & SIZES_FOLLOW else 0)


def _agree(given: tuple[int, ...], known: tuple[int, ...]) -> bool:
    return all(one in (other, IN_ZIP64) for one, other in zip(given, known, strict=True))


def _descriptor_bytes(file: BinaryIO, at: int, known: tuple[int, ...]) -> int:
    """Return how long the descriptor is that repeats checksum and sizes after the content."""
    content = _read(file, at, DESCRIPTOR_64.size)
    for form in (DESCRIPTOR, DESCRIPTOR_64):
        signature, *given = form.unpack_from(content)
        if signature == b"PK\x07\x08" and tuple(given) == known:
            return form.size
    raise DamagedFile("a record of the archive differs from its entry in the directory")


def _read(file: BinaryIO, at: int, num_bytes: int) -> bytes:
    file.seek(at)
    content = file.read(num_bytes)
    if len(content) < num_bytes:
        raise DamagedFile("the archive says that it is longer than the file is")
    return content


def _shown(path: bytes) -> str:
    return repr(path[:100].decode("utf-8", "replace"))
