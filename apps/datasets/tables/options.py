"""What a person may say about an upload, and the limits that hold for every one."""

from collections.abc import Mapping
from dataclasses import dataclass, field

KINDS = ("number", "integer", "category", "boolean", "datetime", "text")
ENCODINGS = ("utf-8", "utf-16", "cp1252")
PICTURES = ("image", "mask")  # the types of columns that only an NPZ has
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
LINES = "\n"  # given as the delimiter: text, of which each line is a row


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """Empty means: find out. `columns` maps a column's name to the type that it must have."""

    encoding: str = ""
    delimiter: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLimits:
    max_columns: int = 1000
    max_rows: int = 50_000_000
    max_unpacked_bytes: int = 8 * 1024**3  # of the table in memory; never held at once
    max_image_bytes: int = 2 * 1024**3  # of an NPZ's arrays, unpacked; a child holds them at once
    max_row_bytes: int = 8 * 1024**2
    max_name_length: int = 200
