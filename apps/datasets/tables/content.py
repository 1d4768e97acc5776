"""What kind of file this is, by its bytes; its name is never believed."""

from enum import StrEnum
from pathlib import Path

from apps.datasets.tables.refusals import TableRefused

PARQUET = b"PAR1"
COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "ZIP (Excel workbooks are ZIP files too)",
    b"PK\x05\x06": "ZIP",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"7z\xbc\xaf\x27\x1c": "7-Zip",
    b"Rar!": "RAR",
}
FOREIGN = {
    b"\xd0\xcf\x11\xe0": "an old Excel workbook",
    b"ARROW1": "a Feather file",
    b"\x89HDF": "an HDF5 file",
    b"ORC": "an ORC file",
    b"%PDF": "a PDF",
    b"SQLite format 3": "an SQLite database",
    b"\x93NUMPY": "a NumPy array",
    b"\x80\x02": "a pickle",
    b"\x80\x03": "a pickle",
    b"\x80\x04": "a pickle",
    b"\x80\x05": "a pickle",
    b"{": "JSON",
    b"[": "JSON",
    b"<": "HTML or XML",
}
ALLOWED = "CSV (comma, semicolon, tab or vertical bar), Parquet, NPZ with images, or text"
ZIP, ZIP_NAME = b"PK\x03\x04", 30  # where the name of the first file in it begins


class TableFormat(StrEnum):
    CSV = "csv"
    PARQUET = "parquet"
    NPZ = "npz"
    TEXT = "text"


def format_of(path: Path, *, is_text: bool = False) -> TableFormat:
    """Return the format; `is_text`: a person says that it is text, whatever that looks like.

    Raises TableRefused: empty, compressed, or known to be something else.
    """
    with path.open("rb") as file:
        head = file.read(512)
    if not head.strip(b"\xef\xbb\xbf \t\r\n"):
        raise TableRefused("EMPTY_FILE", "The file is empty.", allowed=ALLOWED)
    if not is_text and (found := _of_container(head)):
        return found
    _require_unpacked(head)
    if is_text:
        return TableFormat.TEXT
    _require_table(head)
    return TableFormat.CSV


def _of_container(head: bytes) -> TableFormat | None:
    """Return the format of a file that holds one in a container of its own."""
    if head.startswith(PARQUET):
        return TableFormat.PARQUET
    if head.startswith(ZIP) and _first_name(head).endswith(b".npy"):
        return TableFormat.NPZ
    return None


def _require_unpacked(head: bytes) -> None:
    for magic, name in COMPRESSED.items():
        if head.startswith(magic):
            raise TableRefused(
                "COMPRESSED_FILE",
                f"The file is compressed ({name}). Unpack it and upload the table in it.",
                given=name,
                allowed=ALLOWED,
            )


def _require_table(head: bytes) -> None:
    for magic, name in FOREIGN.items():
        if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(magic):
            raise TableRefused(
                "UNSUPPORTED_FORMAT", f"The file looks like {name}.", given=name, allowed=ALLOWED
            )


def _first_name(head: bytes) -> bytes:
    """The name of the first file in a ZIP archive."""
    return head[ZIP_NAME : ZIP_NAME + int.from_bytes(head[26:28], "little")]
